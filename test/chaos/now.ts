/** Milliseconds on the machine's monotonic clock, which all its processes share: the time of every history. */
export const machineNow = (): number => Number(process.hrtime.bigint()) / 1e6
