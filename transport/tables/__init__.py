"""Compacted categories that Penstock keeps on the bus: watermarks, schemas, registrations, maintenance."""
