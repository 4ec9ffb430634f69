import { connect } from 'roomful/client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type counter from '../examples/counter/room.ts'
import { runProgram } from './support/program.ts'
import { TraceCollector } from './support/trace-collector.ts'

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736'
/** The `traceparent` of a backend that traces itself. */
const BACKEND = `00-${TRACE}-00f067aa0ba902b7-01`

describe('traces of a process', () => {
  // Says at the end how many files of OpenTelemetry's SDK were loaded. The SDK's API, which does nothing by itself, is in every process.
  const PRELOADED = `
    import { createRequire } from 'node:module'
    const { cache } = createRequire(${JSON.stringify(import.meta.url)})
    process.on('exit', () => {
      const loaded = Object.keys(cache).filter((path) => /@opentelemetry\\/(?!api\\/)/.test(path))
      process.stdout.write('files of OpenTelemetry: ' + loaded.length + '\\n')
    })`
  let collector: TraceCollector
  beforeEach(async () => {
    collector = await TraceCollector.start()
  })
  afterEach(() => collector.close())

  const tracing = (url = collector.url) => ({
    OTEL_TRACES_EXPORTER: 'otlp',
    OTEL_EXPORTER_OTLP_ENDPOINT: url,
  })

  /** Both planes as one process; someone gets a token, plays, and the process is told to end. */
  const life = async (env: Record<string, string>) => {
    const program = runProgram(['dev'], {
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(PRELOADED)}`,
      LOG_FORMAT: 'json',
      CONTROL_PORT: '0',
      WS_PORT: '0',
      ADMIN_PORT: '0',
      EXAMPLES_PORT: '0',
      ...env,
    })
    const [, api, ws] = (await program.said(
      /dev ready: .*api (http:\/\/[\d.:]+), websocket (ws:\/\/[\d.:]+)/,
    )) as [string, string, string]
    const post = async (path: string, body: object) => {
      const headers = { 'content-type': 'application/json', traceparent: BACKEND }
      const response = await fetch(`${api}${path}`, { method: 'POST', headers, body: JSON.stringify(body) })
      return (await response.json()) as { id: string; token: string; claims: object }
    }
    const { id: projectId } = await post('/projects', { name: 'traced' })
    const { token, claims } = await post('/tokens', { project_id: projectId })
    const client = await connect(ws, { projectId, token })
    const room = await client.join<typeof counter>('counter', { key: 'traced' })
    await room.send('inc', { by: 1 })
    client.close()
    program.child.kill('SIGTERM')
    const exitCode = await program.ended
    const [, files] = program.output().match(/files of OpenTelemetry: (\d+)/)!
    return {
      claims,
      exit_code: exitCode,
      files: Number(files),
      warnings: program
        .output()
        .split('\n')
        .filter((line) => line.includes('"level":"warn"')),
      trace_ids: [...program.output().matchAll(/"trace_id":"(\w+)"/g)].map(([, id]) => id),
    }
  }

  it.each([
    ['unless it is told to', {}],
    ['when OpenTelemetry is disabled', { OTEL_TRACES_EXPORTER: 'otlp', OTEL_SDK_DISABLED: 'true' }],
  ])('are none, nor is anything loaded for them, %s', async (_, env) => {
    const {
      claims,
      exit_code: exitCode,
      files,
      trace_ids: traceIds,
    } = await life({
      OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
      ...env,
    })
    expect({ exit_code: exitCode, files, trace_ids: traceIds }).toEqual({
      exit_code: 0,
      files: 0,
      trace_ids: [],
    })
    expect(claims).not.toHaveProperty('traceparent')
    expect(collector.requests).toEqual([])
  })

  it('are sent at the latest when it ends, and named in its log', async () => {
    const { claims, exit_code: exitCode, files, trace_ids: traceIds, warnings } = await life(tracing())
    expect(exitCode).toBe(0)
    expect(files).toBeGreaterThan(10)
    expect(claims).toHaveProperty('traceparent')
    expect(traceIds).toContain(TRACE)
    expect(warnings.filter((line) => line.includes('trace'))).toEqual([])
    const request = collector.one('POST /tokens')
    expect(request.service).toBe('roomful-control')
    expect(collector.one('handshake')).toMatchObject({
      service: 'roomful-dataplane',
      trace_id: TRACE,
      parent_id: request.span_id,
    })
    expect(collector.named('drain')).toHaveLength(1)
  })

  it('keep it from nothing when no one takes them, and it says so', async () => {
    const { url } = collector
    await collector.close()
    const { exit_code: exitCode, warnings } = await life(tracing(url))
    expect(exitCode).toBe(0)
    expect(warnings.filter((line) => line.includes('traces'))).not.toEqual([])
    collector = await TraceCollector.start()
  })
})
