from .audit_log import AuditOutcome as AuditOutcome
from .audit_log import Operation as Operation
from .audit_log import begun as begun
from .audit_log import operations_since as operations_since
from .audit_log import record as record
