// Figures derived from a processor's status.

const SILENT_AFTER_S = 20;

export const isSilent = (worker) => !worker.end_reason && worker.report_age_s > SILENT_AFTER_S;

export const running = (processor) => processor.workers.filter((worker) => !worker.end_reason && !isSilent(worker));

// The longest time since the last checkpoint of a running worker, in seconds; null before the first checkpoint.
export function checkpointAge(processor) {
  const ages = running(processor).map((worker) => worker.checkpoint_age_s).filter((age) => age !== null);
  return ages.length ? Math.max(...ages) : null;
}

// The shard that determines the low watermark; null if all are idle or have none.
export function slowestShard(processor) {
  const active = processor.shards.filter((shard) => !shard.idle && shard.low_watermark_ms !== null);
  return active.length ? active.reduce((lowest, shard) => (shard.low_watermark_ms < lowest.low_watermark_ms ? shard : lowest)) : null;
}
