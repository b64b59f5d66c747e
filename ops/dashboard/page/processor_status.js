// Figures derived from a processor's status.

const SILENT_AFTER_S = 20;

export const running = (one) => one.workers.filter((worker) => !worker.ended && worker.silent_s <= SILENT_AFTER_S);

// How old the oldest of its workers' last checkpoints is, in seconds; null before the first.
export function lastSaved(one) {
  const ages = running(one).map((worker) => worker.saved_s).filter((age) => age !== null);
  return ages.length ? Math.max(...ages) : null;
}

// The shard that its event time waits for.
export function holder(one) {
  const awake = one.shards.filter((shard) => !shard.idle && shard.low_ms !== null);
  return awake.length ? awake.reduce((least, shard) => (shard.low_ms < least.low_ms ? shard : least)) : null;
}
