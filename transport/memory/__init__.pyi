from .bus import MemoryBus as MemoryBus
