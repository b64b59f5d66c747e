from .root import complete_configuration as complete_configuration
