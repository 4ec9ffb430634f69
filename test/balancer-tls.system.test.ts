import { execFile } from 'node:child_process'
import { X509Certificate } from 'node:crypto'
import { once } from 'node:events'
import { cp, readFile } from 'node:fs/promises'
import { createServer, type IncomingMessage } from 'node:http'
import { connect as connectHttp2 } from 'node:http2'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls'
import { promisify } from 'node:util'
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { WebSocket } from 'ws'
import type { Places } from '../deploy/balancer/configuration.ts'
import type { Login } from './support/cluster.ts'
import {
  BALANCERS,
  type Certificate,
  Deployment,
  fetchTrusting,
  makeCertificate,
  startBalancer,
  switchedOn,
} from './support/deployment.ts'
import { codeOf, ROOT } from './support/pages.ts'
import { freePort, until } from './support/redis-server.ts'
import { newFolder } from './support/run-folder.ts'

const ROOM = 'ledger-journal:encrypted'
const HSTS = 'max-age=31536000'
/** Connections (nginx: requests) that the limit allows for one address. */
const LIMIT = 200
/** Requests to control that the limit allows for one address. */
const UPLOADS = 1000

let certificate: Certificate
beforeAll(async () => {
  certificate = await makeCertificate()
})

describe.each(BALANCERS)('%s', (kind) => {
  it('has TLS after the commands of deploy/balancer/README.md', async () => {
    const folder = await newFolder()
    const names = ['haproxy.cfg', 'nginx.conf']
    for (const name of names) await cp(join(ROOT, 'deploy/balancer', name), join(folder, name))
    const [commands] = codeOf('deploy/balancer/README.md', 'sh', 'TLS')
    await promisify(execFile)('bash', ['-euc', commands!], { cwd: folder })
    const name = names[BALANCERS.indexOf(kind)]!
    const before = await readFile(join(ROOT, 'deploy/balancer', name), 'utf8')
    const after = await readFile(join(folder, name), 'utf8')
    expect(after).not.toContain('#tls ')
    expect(after).toBe(switchedOn(before, ['tls']))
  })
})

/** Opens a TLS connection that ends with the test. Rejects if the server refuses. */
function handshake(
  url: string,
  options: ConnectionOptions & { localAddress?: string } = {},
): Promise<TLSSocket> {
  const { hostname: host, port } = new URL(url)
  const socket = connect({ host, port: Number(port), ca: certificate.cert, ...options })
  onTestFinished(() => void socket.destroy())
  return new Promise((resolve, reject) => {
    socket.once('secureConnect', () => resolve(socket))
    socket.once('error', reject)
  })
}

describe.each(BALANCERS)('%s with TLS, before a deployment', (kind) => {
  let deployment: Deployment
  let login: Login
  beforeAll(async () => {
    const nodeEnv = { HEARTBEAT_SECONDS: '1' }
    deployment = await Deployment.start({ balancer: kind, nodes: 2, certificate, nodeEnv })
    login = await deployment.login()
  })
  afterEach(() => deployment?.restore())
  afterAll(() => deployment?.close())

  it('nodes that ask control over TLS know a key, and its revocation', async () => {
    const { projectId } = login
    const { body: key } = await deployment.call(`POST /projects/${projectId}/keys`, { body: {} })
    const { body } = await deployment.call('POST /tokens', {
      as: key.secret,
      body: { project_id: projectId },
    })
    const player = await deployment.player({ projectId, token: body.token }, `${ROOM}-key`)
    await player.add()
    expect((await deployment.call(`POST /projects/${projectId}/keys/${key.id}/revoke`)).status).toBe(200)
    await until('the session has ended', async () => player.client.status === 'closed')
  })

  it('control supports HTTP/2 and HTTP/1.1, and sends Strict-Transport-Security', async () => {
    const { controlUrl } = deployment.balancer
    const over1 = await deployment.call('GET /projects?limit=1')
    expect(over1.status).toBe(200)
    expect(over1.headers.get('strict-transport-security')).toBe(HSTS)

    const session = connectHttp2(controlUrl, { ca: certificate.cert })
    onTestFinished(() => void session.close())
    const body = JSON.stringify({ project_id: login.projectId })
    const request = session.request({
      ':method': 'POST',
      ':path': '/tokens',
      authorization: `Bearer ${deployment.operatorToken}`,
      'content-type': 'application/json',
      'x-request-id': 'over-http-2',
    })
    const response = new Promise<Record<string, unknown>>((resolve) => request.once('response', resolve))
    let text = ''
    request.setEncoding('utf8').on('data', (chunk) => (text += chunk))
    request.end(body)
    expect(await response).toMatchObject({
      ':status': 200,
      'x-request-id': 'over-http-2',
      'strict-transport-security': HSTS,
    })
    await new Promise((resolve) => request.once('close', resolve))
    expect(JSON.parse(text).token).toMatch(/^v4\.public\./)
  })

  it('a client that offers HTTP/2 and HTTP/1.1 for a websocket gets HTTP/1.1', async () => {
    const { wsUrl } = deployment.balancer
    const { alpnProtocol } = await handshake(wsUrl, { ALPNProtocols: ['h2', 'http/1.1'] })
    expect(alpnProtocol).toBe('http/1.1')
    const options = { ca: certificate.cert, ALPNProtocols: ['h2', 'http/1.1'] }
    const socket = new WebSocket(wsUrl, ['roomful.v1.json'], options)
    const upgraded = new Promise<IncomingMessage>((resolve) => socket.once('upgrade', resolve))
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject))
    expect((await upgraded).headers['strict-transport-security']).toBe(HSTS)
    socket.close()
  })

  it('TLS below 1.2 and ciphers without forward secrecy are refused', async () => {
    for (const url of [deployment.balancer.wsUrl, deployment.balancer.controlUrl]) {
      expect((await handshake(url)).getProtocol()).toBe('TLSv1.3')
      const newer = await handshake(url, { maxVersion: 'TLSv1.2' })
      expect(newer.getProtocol()).toBe('TLSv1.2')
      expect(newer.getCipher().name).toMatch(/^ECDHE-RSA-/)
      const weak = 'DEFAULT:@SECLEVEL=0'
      const older = handshake(url, { minVersion: 'TLSv1', maxVersion: 'TLSv1.1', ciphers: weak })
      await expect(older).rejects.toThrow(/alert protocol version/)
      const staticKey = handshake(url, { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' })
      await expect(staticKey).rejects.toThrow(/alert handshake failure/)
      await expect(handshake(url, { ca: [] })).rejects.toThrow(/self-signed/)
    }
  })

  it('new connections get a renewed certificate, and open connections stay open', async () => {
    const renewed = await makeCertificate()
    const player = await deployment.player(login, `${ROOM}-renewed`)
    const stop = player.play(20)
    const { balancer } = deployment
    await balancer.renew(renewed)
    const shown = async () => {
      const url = new URL(balancer.wsUrl)
      const socket = connect({ host: url.hostname, port: Number(url.port), rejectUnauthorized: false })
      await new Promise((resolve, reject) => socket.once('secureConnect', resolve).once('error', reject))
      const { fingerprint256 } = socket.getPeerCertificate()
      socket.destroy()
      return fingerprint256
    }
    // An old worker may accept some connections after a new worker has accepted one.
    const showsAll = async ({ cert }: { cert: string }): Promise<boolean> => {
      const { fingerprint256 } = new X509Certificate(cert)
      for (let look = 0; look < 20; look++) if ((await shown()) !== fingerprint256) return false
      return true
    }
    await until('all new connections get it', () => showsAll(renewed))
    const { acked } = player
    await until('the player continues', async () => player.acked > acked + 10)
    await stop()
    expect(player.client.stats.reconnects).toBe(0)
    await balancer.renew(certificate)
    await until('the first certificate is back', () => showsAll(certificate))
  })

  it('unencrypted requests are redirected or refused, and reach no server', async () => {
    const { websocket, control, tls } = deployment.places
    const get = fetchTrusting(undefined)
    const redirected = await get(`http://${websocket}/some/where?a=b`)
    expect(redirected.status).toBe(308)
    expect(redirected.headers.get('location')).toBe(`https://${tls!.websocket}/some/where?a=b`)
    const named = await get(`http://${websocket}/`, { headers: { host: 'play.example.com:4000' } })
    const port = tls!.websocket.split(':')[1]
    expect(named.headers.get('location')).toBe(`https://play.example.com:${port}/`)

    const socket = new WebSocket(`ws://${websocket}`, ['roomful.v1.json'])
    const refused = await new Promise<Error>((resolve) => socket.once('error', resolve))
    expect(refused.message).toBe('Unexpected server response: 308')

    const headers = {
      authorization: `Bearer ${deployment.operatorToken}`,
      'content-type': 'application/json',
    }
    const body = JSON.stringify({ name: 'readable on its way' })
    const answer = await get(`http://${control}/projects`, { method: 'POST', headers, body })
    expect(answer.status).toBe(403)
    expect(answer.headers.get('content-type')).toBe('application/problem+json')
    expect(answer.headers.get('strict-transport-security')).toBeNull()
    expect(await answer.json()).toMatchObject({ status: 403, detail: expect.stringContaining('https') })
    const { body: known } = await deployment.call('GET /projects?limit=200')
    expect(known.projects.map(({ name }: { name: string }) => name)).not.toContain('readable on its way')
  })
})

describe.each(BALANCERS)('%s with all optional settings', (kind) => {
  /** Requests to the server behind it, oldest first. */
  const asked: IncomingMessage[] = []
  const server = createServer((request, response) => {
    asked.push(request)
    // /hold gets no answer.
    if (request.url !== '/hold') response.writeHead(request.url === '/' ? 426 : 200).end()
  })
  let places: Places
  let balancer: Awaited<ReturnType<typeof startBalancer>>
  beforeAll(async () => {
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    const { port } = server.address() as AddressInfo
    const address = `127.0.0.1:${port}`
    const free = async () => `127.0.0.1:${await freePort()}`
    places = {
      websocket: await free(),
      control: await free(),
      operations: await free(),
      nodes: [{ address, healthPort: port }],
      controls: [{ address }],
      tls: { websocket: await free(), control: await free() },
    }
    balancer = await startBalancer(kind, places, { settings: ['tls', 'hsts', 'limit'], certificate })
  })
  afterAll(async () => {
    await balancer?.close()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  })

  it('servers get the address and the protocol of the client, not its forged headers', async () => {
    const forged = { 'x-forwarded-for': '203.0.113.7, 198.51.100.1', 'x-forwarded-proto': 'http' }
    const get = fetchTrusting(certificate.cert)
    const https = (url: string) => `${url.replace('wss:', 'https:')}/who`
    for (const url of [balancer.wsUrl, balancer.controlUrl]) {
      asked.length = 0
      expect((await get(https(url), { headers: forged })).status).toBe(200)
      const seen = asked.find((request) => request.url === '/who')!
      expect(seen.headersDistinct['x-forwarded-for']).toEqual(['127.0.0.1'])
      expect(seen.headersDistinct['x-forwarded-proto']).toEqual(['https'])
    }
  })

  it('a request with larger headers than a node accepts gets 400 or 431, not 502', async () => {
    const headers = { 'x-a': 'a'.repeat(7000), 'x-b': 'b'.repeat(7000), 'x-c': 'c'.repeat(7000) }
    const url = balancer.wsUrl.replace('wss:', 'https:')
    const { status } = await fetchTrusting(certificate.cert)(url, { headers })
    expect(status).toBe(kind === 'haproxy' ? 400 : 431)
  })

  it('a new client gets 503 when no node is reachable', async () => {
    const free = async () => `127.0.0.1:${await freePort()}`
    const { tls: _, ...rest } = places
    const lonely = await startBalancer(kind, {
      ...rest,
      websocket: await free(),
      control: await free(),
      operations: await free(),
      nodes: [{ address: await free(), healthPort: await freePort() }],
    })
    onTestFinished(() => lonely.close())
    expect((await fetch(lonely.wsUrl.replace('ws:', 'http:'))).status).toBe(503)
  })

  it('the limit for one address ignores forged headers', async () => {
    const hold = async (localAddress = '127.0.0.1') => {
      const socket = await handshake(balancer.wsUrl, { localAddress, servername: 'localhost' })
      let said = ''
      let over = false
      socket.on('data', (chunk) => (said += chunk)).on('error', () => undefined)
      socket.once('close', () => (over = true))
      const client = `x-forwarded-for: 10.0.0.${++clients}`
      socket.write(`GET /hold HTTP/1.1\r\nhost: roomful\r\nconnection: close\r\n${client}\r\n\r\n`)
      return () => over || said.startsWith('HTTP/1.1 429')
    }
    let clients = 0
    const tryTo = (from?: string) => hold(from).catch(() => () => true)
    asked.length = 0
    const holding = () => asked.filter(({ url, socket }) => url === '/hold' && !socket.destroyed).length
    await until(
      'the limit is reached',
      async () => {
        await Promise.all(Array.from({ length: Math.min(20, LIMIT - holding()) }, () => tryTo()))
        return holding() === LIMIT
      },
      40_000,
    )
    const oneMore = await tryTo()
    await until('one more is refused', async () => oneMore())
    const neighbour = await tryTo('127.0.0.2')
    await until('another address is accepted', async () => holding() === LIMIT + 1)
    expect(neighbour()).toBe(false)
  })

  // haproxy ends such a request after five seconds.
  if (kind === 'nginx')
    it('unfinished request bodies of one address are limited, and other addresses are served', async () => {
      const more = 10
      const statuses: (number | undefined)[] = []
      const sessions = Array.from({ length: 10 }, () =>
        connectHttp2(balancer.controlUrl, { ca: certificate.cert }).on('error', () => undefined),
      )
      onTestFinished(() => sessions.forEach((session) => void session.destroy()))
      const headers = { ':method': 'POST', ':path': '/tokens', 'content-length': '60000' }
      const uploads = Array.from({ length: UPLOADS + more }, (_, i) => {
        const upload = sessions[i % sessions.length]!.request(headers)
        upload.on('response', ({ ':status': status }) => statuses.push(status)).on('error', () => undefined)
        return upload
      })
      const trickle = () => {
        for (const upload of uploads) if (upload.writable) upload.write('x')
      }
      const timer = setInterval(trickle, 1000)
      onTestFinished(() => clearInterval(timer))
      await until('the rest is refused', async () => statuses.length >= more)
      expect(statuses).toEqual(Array.from({ length: more }, () => 429))
      const neighbour = await handshake(balancer.controlUrl, { localAddress: '127.0.0.2' })
      neighbour.write('GET /projects HTTP/1.1\r\nhost: roomful\r\n\r\n')
      const [answer] = await once(neighbour, 'data')
      expect(String(answer)).toMatch(/^HTTP\/1.1 200 /)
    })
})
