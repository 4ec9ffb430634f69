/** What a server under measurement answers over its parent's IPC channel. */
export interface CpuSample {
  /** CPU time of the whole process since its start, user and system, microseconds. */
  readonly cpu_us: number
  readonly rss_bytes: number
  /** Inputs handled since its start. */
  readonly inputs: number
}

/** Answers `{sample: id}` with the process' figures and obeys `{payload: bytes}`; the server's half of `ServerUnderTest`. */
export function reportCpu(server: { inputs(): number; payload?(bytes: number): void }): void {
  process.on('message', (message: { sample?: number; payload?: number }) => {
    if (message.payload !== undefined) server.payload?.(message.payload)
    if (message.sample === undefined) return
    const { user, system } = process.cpuUsage()
    process.send?.({
      sample: message.sample,
      cpu_us: user + system,
      rss_bytes: process.memoryUsage().rss,
      inputs: server.inputs(),
    })
  })
  process.on('disconnect', () => process.exit(0))
}
