// Figures derived from a processor's status.

export const running = (processor) => processor.workers.filter((worker) => !worker.end_reason && !worker.is_silent);

// The shard that determines the low watermark; null if all are idle or have none.
export function slowestShard(processor) {
  const active = processor.shards.filter((shard) => !shard.idle && shard.low_watermark_ms !== null);
  return active.length ? active.reduce((lowest, shard) => (shard.low_watermark_ms < lowest.low_watermark_ms ? shard : lowest)) : null;
}

// The versions of a processor's workers; several during an update.
export const versionsOf = (processor) => processor.versions.join(", ") || "–";

const SKEW_S = 60;

// The buckets with far more events than most others, or that alone lag. Buckets with few events are never hot.
export function hotBuckets(processor) {
  const rates = processor.shards.map((shard) => shard.events_in_per_s).sort((left, right) => left - right);
  const median = rates[Math.floor((rates.length - 1) / 2)] ?? 0;
  const isHot = (shard) => shard.events_in_per_s > Math.max(10, 3 * median) || (shard.bucket === processor.skewed_bucket && shard.lag_s > SKEW_S);
  return new Set(processor.shards.length < 2 ? [] : processor.shards.filter(isHot).map((shard) => shard.bucket));
}
