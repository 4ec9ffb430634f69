import { readFile } from 'node:fs/promises'
import { pino } from 'pino'
import { connect } from 'roomful/client'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { type RunningControl, startControl } from '../control/main.ts'
import { sessionKey } from '../dataplane/gateway/session-store.ts'
import type counter from '../examples/counter/room.ts'
import { systemClock } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { readToken } from '../shared/tokens.ts'
import { openTracing } from '../shared/tracing/open.ts'
import type { Tracing } from '../shared/tracing/tracer.ts'
import { type LocalNode, type Login, type NodeProcess, sharedCluster } from './support/cluster.ts'
import { runProgram } from './support/program.ts'
import { until } from './support/redis-server.ts'
import { type CollectedSpan, TraceCollector } from './support/tracing.ts'

const parts = { clock: systemClock, log: pino({ level: 'silent' }) }

/** Trace context of a backend. */
const BACKEND = {
  trace_id: '4bf92f3577b34da6a3ce929d0e0e4736',
  span_id: '00f067aa0ba902b7',
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
}

/** Times have a resolution of 1 ms, and differ by up to 2 ms between processes. */
const within = (inner: CollectedSpan, outer: CollectedSpan): boolean =>
  inner.start >= outer.start - 2 && inner.end <= outer.end + 2

describe('traces from a backend’s token request up to the join', () => {
  const cluster = sharedCluster()
  let collector: TraceCollector
  let control: RunningControl
  let tracings: Tracing[]
  let nodes: LocalNode[]
  let login: Login

  const tracing = async (serviceName: string, instanceId: string) => {
    vi.stubEnv('OTEL_EXPORTER_OTLP_ENDPOINT', collector.url)
    const opened = await openTracing({ config: { serviceName, headers: '' }, instanceId, ...parts })
    tracings.push(opened)
    return opened.tracer
  }

  beforeEach(async () => {
    collector = await TraceCollector.start()
    tracings = []
    nodes = []
    for (const name of ['one', 'two'])
      nodes.push(...(await cluster.local(1, { tracer: await tracing('roomful-dataplane', name) })))
    control = await startControl({
      config: { controlPort: 0 },
      store: cluster.store,
      tracer: await tracing('roomful-control', 'control'),
      random: systemRandom,
      ...parts,
    })
    login = await cluster.login()
  })
  afterEach(async () => {
    vi.unstubAllEnvs()
    await control.close()
    await cluster.reset()
    await collector.close()
  })

  /** Requests a token from the traced control, like a backend. */
  const tokenWith = async (headers: Record<string, string>) => {
    const response = await fetch(`${control.url}/tokens`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify({ project_id: login.projectId }),
    })
    expect(response.status).toBe(200)
    return (await response.json()) as { token: string; claims: Record<string, unknown> }
  }

  /** Ends all spans, and waits until the collector has them. */
  const collected = async (): Promise<void> => {
    await cluster.reset()
    await Promise.all(tracings.map((each) => each.close()))
  }

  it('are one trace over control, the edge of the client, and the owner of the room on another node', async () => {
    const first = await cluster.player(login, 'ledger-journal:whole', nodes[0])
    // Otherwise its edge might already know the owner.
    await first.room.leave()
    const [owner, edge] = await cluster.ownerFirst(login, 'ledger-journal:whole', nodes)
    const { token, claims } = await tokenWith({
      traceparent: BACKEND.traceparent,
      tracestate: 'vendor=value',
    })
    const player = await cluster.player({ ...login, token }, 'ledger-journal:whole', edge)
    await player.add()
    await collected()

    const trace = collector.spans.filter(({ trace_id: traceId }) => traceId === BACKEND.trace_id)
    const names = ['POST /tokens', 'handshake', 'join', 'room.join']
    expect(trace.map(({ name }) => name).sort()).toEqual(names)
    const of = (name: string) => trace.find((span) => span.name === name)!
    const request = of('POST /tokens')
    expect(request).toMatchObject({
      service: 'roomful-control',
      parent_id: BACKEND.span_id,
      state: 'vendor=value',
      kind: 2,
      failed: false,
      attributes: {
        'http.request.method': 'POST',
        'http.route': '/tokens',
        'url.path': '/tokens',
        'http.response.status_code': 200,
        'roomful.project_id': login.projectId,
      },
    })
    expect(trace.map(({ state }) => state)).toEqual(names.map(() => 'vendor=value'))
    expect(claims.tracestate).toBe('vendor=value')
    expect(claims.traceparent).toBe(`00-${BACKEND.trace_id}-${request.span_id}-01`)
    const handshake = of('handshake')
    expect(handshake).toMatchObject({
      service: 'roomful-dataplane',
      parent_id: request.span_id,
      kind: 2,
      attributes: { 'roomful.result': 'welcome', 'roomful.resume': false },
    })
    const join = of('join')
    expect(join).toMatchObject({
      instance: handshake.instance,
      parent_id: handshake.span_id,
      kind: 2,
      attributes: {
        'roomful.room_id': 'ledger-journal:whole',
        'roomful.session_id': handshake.attributes['roomful.session_id'],
        'roomful.result': 'joined',
      },
    })
    const atOwner = of('room.join')
    expect(atOwner).toMatchObject({
      parent_id: join.span_id,
      kind: 5,
      attributes: {
        'roomful.room_type': 'ledger-journal',
        'roomful.durability': 'journal',
        'roomful.result': 'joined',
      },
    })
    const instances = { [nodes[0]!.nodeId]: 'one', [nodes[1]!.nodeId]: 'two' }
    expect(atOwner.instance).toBe(instances[owner!.nodeId])
    expect(join.instance).toBe(instances[edge!.nodeId])
    expect(within(atOwner, join)).toBe(true)
  })

  it('start in control if the backend sends an invalid context', async () => {
    const none = ['00-zz-zz-01', '', `00-${'0'.repeat(32)}-${'1'.repeat(16)}-01`, 'x'.repeat(5000)]
    for (const traceparent of none) {
      const { claims } = await tokenWith({ traceparent })
      expect(claims.traceparent).toMatch(/^00-[\da-f]{32}-[\da-f]{16}-01$/)
    }
    await collected()
    expect(collector.named('POST /tokens').map(({ parent_id: parentId }) => parentId)).toEqual([
      '',
      '',
      '',
      '',
    ])
  })

  it('continue the trace of a backend with the code of docs/monitoring.md', async () => {
    const page = await readFile(new URL('../docs/monitoring.md', import.meta.url), 'utf8')
    const [, snippet] = /^```js\n(.*?async function tokenFor.*?)^```/ms.exec(page)!
    const secret = await fetch(`${control.url}/projects/${login.projectId}/keys`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{}',
    }).then(async (response) => ((await response.json()) as { secret: string }).secret)
    const make = new Function('CONTROL_URL', 'PROJECT_ID', 'KEY_SECRET', `${snippet}; return tokenFor`)
    const tokenFor = make(control.url, login.projectId, secret) as (
      from: Request,
      player: string,
    ) => Promise<string>
    const headers = { traceparent: BACKEND.traceparent, tracestate: 'vendor=value' }
    const token = await tokenFor(new Request('http://backend', { headers }), 'ann')
    expect(readToken(token).claims).toMatchObject({ sub: 'ann', tracestate: 'vendor=value' })
    expect(readToken(token).claims.traceparent).toContain(BACKEND.trace_id)
    const untraced = await tokenFor(new Request('http://backend'), 'ben')
    expect(readToken(untraced).claims.traceparent).not.toContain(BACKEND.trace_id)
  })

  it('pass on the valid part of tracestate', async () => {
    const longest = `a=${'x'.repeat(254)},b=${'y'.repeat(253)}`
    const carried = async (tracestate: string) => {
      const { claims } = await tokenWith({ traceparent: BACKEND.traceparent, tracestate })
      expect(claims.traceparent).toContain(BACKEND.trace_id)
      return claims.tracestate
    }
    expect(await carried('Vendor=1')).toBeUndefined()
    expect(await carried('x'.repeat(5000))).toBeUndefined()
    expect(await carried(`${longest},c=1`)).toBe(longest)
  })

  it('are not recorded if the backend does not sample its trace', async () => {
    const { token, claims } = await tokenWith({ traceparent: BACKEND.traceparent.replace(/01$/, '00') })
    expect(claims).not.toHaveProperty('traceparent')
    await cluster.player({ ...login, token }, 'ledger-none:quiet', nodes[0])
    await collected()
    expect(collector.spans.filter(({ trace_id: traceId }) => traceId === BACKEND.trace_id)).toEqual([])
  })

  it('contain no secrets', async () => {
    const { token } = await tokenWith({ traceparent: BACKEND.traceparent })
    const player = await cluster.player({ ...login, token }, 'ledger-none:secret', nodes[0])
    await player.add()
    const stranger = connect(nodes[0]!.wsUrl, { projectId: login.projectId, token: `${token}x` })
    await expect(stranger).rejects.toThrow()
    await collected()
    const refused = collector.one('handshake', ({ attributes }) => attributes['roomful.close_code'] === 4001)
    expect(refused).toMatchObject({ parent_id: '', attributes: { 'roomful.result': 'unauthenticated' } })
    const sent = collector.requests.map(({ body }) => body).join()
    expect(sent).toContain('ledger-none:secret')
    expect(sent).not.toContain(token.slice(20, 60))
    expect(sent).not.toContain('v4.public')
  })
})

describe('traces of a cluster', () => {
  const cluster = sharedCluster({ leaseMs: 2000 })
  let collector: TraceCollector
  beforeAll(async () => {
    collector = await TraceCollector.start()
  })
  afterAll(() => collector.close())

  const started = (count: number): Promise<NodeProcess[]> =>
    cluster.processes(count, {
      env: {
        OTEL_TRACES_EXPORTER: 'otlp',
        OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
        OTEL_EXPORTER_OTLP_HEADERS: 'api-key=of-the-collector',
        OTEL_SERVICE_NAME: 'games',
        OTEL_BSP_SCHEDULE_DELAY: '50',
      },
    })

  /** Waits for the handshake span that started a session. */
  const beginning = (sessionId: string | undefined) =>
    collector.has(
      'handshake',
      ({ attributes }) =>
        attributes['roomful.session_id'] === sessionId && attributes['roomful.resume'] === false,
    )

  it('contain the takeover of a dead node’s room, and the resumes after it', async () => {
    const roomId = 'ledger-journal:taken'
    const nodes = await started(2)
    const login = await cluster.login()
    await cluster.player(login, roomId, nodes[0])
    const [dead, heir] = await cluster.ownerFirst(login, roomId, nodes)
    const here = await cluster.player(login, roomId, heir)
    const there = await cluster.player(login, roomId, dead)
    await here.add()
    const members = (await cluster.room(roomId))!.members
    const sessionOf = ({ id }: { id: string }) =>
      members.find(({ member_id: memberId }) => memberId === id)?.session_id
    const beganHere = await beginning(sessionOf(here))
    const beganThere = await beginning(sessionOf(there))
    await until('the store knows the trace of the session', async () => {
      const [record] = await cluster.store.records.read([sessionKey(sessionOf(there)!)])
      return record !== undefined && Buffer.from(record.value).includes(beganThere.span_id)
    })

    dead!.kill()
    await here.add()
    await there.add()
    const takeOver = await collector.has('room.take_over')
    expect(takeOver).toMatchObject({
      service: 'games',
      instance: heir!.nodeId,
      parent_id: '',
      attributes: {
        'roomful.room_id': roomId,
        'roomful.from_node_id': dead!.nodeId,
        'roomful.epoch': (await cluster.owner(login, roomId)).epoch,
      },
    })
    expect(takeOver.links).toContainEqual({ trace_id: beganHere.trace_id, span_id: beganHere.span_id })
    const resume = await collector.has(
      'handshake',
      ({ attributes }) =>
        attributes['roomful.session_id'] === sessionOf(there) && attributes['roomful.resume'] === true,
    )
    expect(resume).toMatchObject({
      parent_id: '',
      attributes: { 'roomful.result': 'resumed' },
      links: [{ trace_id: beganThere.trace_id, span_id: beganThere.span_id }],
    })
    expect(resume.trace_id).not.toBe(beganThere.trace_id)

    expect(collector.requests.every(({ path }) => path === '/v1/traces')).toBe(true)
    expect(collector.requests.every(({ headers }) => headers['api-key'] === 'of-the-collector')).toBe(true)
  })
})

describe('traces of a process', () => {
  // Prints at the end the number of loaded files of OpenTelemetry's SDK. Its API, which does nothing without the SDK, is in every process.
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

  /** Starts control and a node as one process. A player gets a token and plays. Then the process ends with SIGTERM. */
  const life = async (env: Record<string, string>) => {
    const program = runProgram(['dev'], {
      NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(PRELOADED)}`,
      CONTROL_PORT: '0',
      WS_PORT: '0',
      ADMIN_PORT: '0',
      EXAMPLES_PORT: '0',
      LOG_LEVEL: 'info',
      ...env,
    })
    const [, api, ws] = (await program.said(
      /dev ready: .*api (http:\/\/[\d.:]+), websocket (ws:\/\/[\d.:]+)/,
    )) as [string, string, string]
    const post = async (path: string, body: object) => {
      const headers = { 'content-type': 'application/json', traceparent: BACKEND.traceparent }
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
    ['by default', {}],
    ['when no exporter is named', { OTEL_TRACES_EXPORTER: 'none' }],
  ])('are not sent, and their packages are not loaded, %s', async (_, env) => {
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

  it('are sent before the process ends, and its log has their trace ids', async () => {
    const { claims, exit_code: exitCode, files, trace_ids: traceIds, warnings } = await life(tracing())
    expect(exitCode).toBe(0)
    expect(files).toBeGreaterThan(10)
    expect(claims).toHaveProperty('traceparent')
    expect(traceIds).toContain(BACKEND.trace_id)
    expect(warnings.filter((line) => line.includes('traces'))).toEqual([])
    const request = collector.one('POST /tokens')
    expect(request.service).toBe('roomful-control')
    expect(collector.one('handshake')).toMatchObject({
      service: 'roomful-dataplane',
      trace_id: BACKEND.trace_id,
      parent_id: request.span_id,
    })
    expect(collector.named('join')).toHaveLength(1)
  })

  it('cause a warning and no failure if the collector does not answer', async () => {
    const { url } = collector
    await collector.close()
    const { exit_code: exitCode, warnings } = await life(tracing(url))
    expect(exitCode).toBe(0)
    expect(warnings.filter((line) => line.includes('traces'))).not.toEqual([])
    collector = await TraceCollector.start()
  })
})
