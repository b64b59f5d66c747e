from .registries import PASSWORD_VARIABLE as PASSWORD_VARIABLE
from .registries import NamedRegistry as NamedRegistry
