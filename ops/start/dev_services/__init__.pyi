from .service import ServiceStatus as ServiceStatus
from .services import LocalServices as LocalServices
