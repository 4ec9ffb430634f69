import { execFile } from 'node:child_process'
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { promisify } from 'node:util'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { launchChromium } from './support/chromium.ts'
import { programOr } from './support/debian-package.ts'
import { gameProjects } from './support/game-projects.ts'
import { blocksOf } from './support/pages.ts'
import { startTyped } from './support/program.ts'
import { freePort } from './support/redis-server.ts'
import { newFolder, runEnvironment } from './support/run-folder.ts'

const PAGE = 'docs/deploy-small.md'
/** Log line of a node group whose workers have all been replaced. */
const RELOADED = /the workers are replaced/

/**
 * Commands that only the machine of a reader has. `npm ci` needs the registry: the game has the same packages. systemctl notes what is
 * started, and the test starts it from its unit.
 */
const STUBS = `
apt-get() { :; }
redis-cli() { :; }
git() { :; }
npm() { [ "$1" = ci ] || command npm "$@"; }
systemctl() { echo "systemctl $*" >&3; }
`

const run = promisify(execFile)
const commands = blocksOf(PAGE, 'sh').map(({ code }) => code)
const block = (begin: string) => commands.find((code) => code.includes(begin))!

describe('docs/deploy-small.md', () => {
  let machine = ''
  let game = ''
  let browser: Browser | undefined
  let ports: Readonly<Record<'CONTROL_PORT' | 'WS_PORT' | 'ADMIN_PORT' | 'PORT' | 'CADDY', number>>
  const running = new Map<string, ReturnType<typeof startTyped>>()

  beforeAll(async () => {
    machine = await newFolder()
    const games = await gameProjects()
    game = await games.create('game', 'backend')
    for (const folder of ['etc/systemd/system', 'etc/caddy', 'data'])
      await mkdir(join(machine, folder), { recursive: true })
    const [CONTROL_PORT, WS_PORT, ADMIN_PORT, PORT, CADDY] = await Promise.all(
      Array.from({ length: 5 }, () => freePort()),
    )
    ports = {
      CONTROL_PORT: CONTROL_PORT!,
      WS_PORT: WS_PORT!,
      ADMIN_PORT: ADMIN_PORT!,
      PORT: PORT!,
      CADDY: CADDY!,
    }
  })
  afterAll(async () => {
    await browser?.close()
    for (const { end } of running.values()) end()
  })

  /** Paths of this machine instead of those of the reader's. */
  const here = (text: string) =>
    text
      .replaceAll('/srv/game', game)
      .replaceAll('/etc/', `${machine}/etc/`)
      .replaceAll('/var/lib/game', `${machine}/data`)
  const etc = (path: string) => join(machine, 'etc', path)

  /** Types a block. Returns the arguments of each `systemctl`. */
  async function type(code: string): Promise<string[]> {
    const said = join(machine, 'systemctl')
    await writeFile(said, '')
    const script = `exec 3>>${said}\n${STUBS}\n${here(code)}`
    await run('bash', ['-euo', 'pipefail', '-c', script], { env: { ...runEnvironment() } })
    return (await readFile(said, 'utf8'))
      .trim()
      .split('\n')
      .map((line) => line.replace('systemctl ', ''))
  }

  /** Starts an instance of a unit as systemd does: only with its environment, in its working directory. */
  async function start(service: string): Promise<void> {
    const [name, instance = ''] = service.split('@')
    const file = instance ? `${name}@.service` : `${name}.service`
    const unit = here(await readFile(etc(`systemd/system/${file}`), 'utf8')).replaceAll('%i', instance)
    const setting = (of: string) => new RegExp(`^${of}=(.*)$`, 'm').exec(unit)![1]!
    const env = `${setting('Environment')} PATH="${process.env.PATH}" TMPDIR="${process.env.TMPDIR}"`
    const vars = `$(grep -v '^#' ${setting('EnvironmentFile')})`
    const line = `exec env -i ${env} ${vars} ${setting('ExecStart')}`
    running.set(service, startTyped(line, setting('WorkingDirectory')))
  }

  /** Resolves when a service answers. Rejects with its output. */
  const answers = (service: string, port: number, path: string) =>
    expect
      .poll(() =>
        fetch(`http://127.0.0.1:${port}${path}`).then(
          ({ status }) => status,
          () => running.get(service)!.output(),
        ),
      )
      .toBe(200)
  const backendAnswers = () => answers('game-backend', ports.PORT, '/api/coins')

  it('builds the game, and installs its files', async () => {
    await type(block('npm run build'))
    await type(block('domain='))
    for (const name of ['roomful', 'backend']) {
      const text = await readFile(etc(`game/${name}.env`), 'utf8')
      const empty = name === 'backend' ? ['PROJECT_ID', 'ROOMFUL_KEY', 'NOTIFY_KEY'] : []
      expect([...text.matchAll(/^(\w+)=$/gm)].map(([, variable]) => variable)).toEqual(empty)
      // Every variable has a comment, above itself or above the variable before it.
      expect(text).not.toMatch(/^$\n^\w+=/m)
    }
  })

  it('builds a new version, reloads the nodes and restarts the backend', async () => {
    const told = ['reload roomful@dataplane roomful@control', 'restart game-backend']
    expect(await type(block('git pull'))).toEqual(told)
    const unit = await readFile(etc('systemd/system/roomful@.service'), 'utf8')
    expect(unit).toContain('ExecReload=/bin/kill -HUP $MAINPID')
  })

  it('has units that systemd accepts', async () => {
    const analyze = programOr('systemd-analyze', 'systemd')
    for (const unit of ['roomful@.service', 'game-backend.service']) {
      const file = join(machine, unit)
      await writeFile(file, here(await readFile(etc(`systemd/system/${unit}`), 'utf8')))
      const { stdout, stderr } = await run(analyze, ['verify', '--recursive-errors=no', file])
      expect(stdout + stderr).toBe('')
    }
  })

  it('starts control, nodes and backend with a project and a key', async () => {
    // The ports of this machine, and a place in a Redis that other tests use.
    const { CONTROL_PORT, WS_PORT, ADMIN_PORT, PORT, CADDY } = ports
    const own = {
      CONTROL_PORT,
      WS_PORT,
      ADMIN_PORT,
      CONTROL_URL: `http://127.0.0.1:${CONTROL_PORT}`,
      NOTIFY_URL: `http://127.0.0.1:${PORT}/api/notices`,
      REDIS_URL: inject('redisUrl'),
      KEY_PREFIX: `deploy-small-${basename(machine)}:`,
      ALLOWED_ORIGINS: `https://localhost:${CADDY}`,
    }
    const lines = (of: object) =>
      Object.entries(of)
        .map(([name, value]) => `${name}=${value}\n`)
        .join('')
    for (const [name, more] of [
      ['roomful', own],
      ['backend', { PORT, CONTROL_URL: own.CONTROL_URL }],
    ] as const) {
      const file = etc(`game/${name}.env`)
      await writeFile(file, here(await readFile(file, 'utf8')) + lines(more))
    }
    const [, enabled] = await type(block('daemon-reload'))
    const services = enabled!.replace('enable --now ', '').split(' ')
    expect(services).toEqual(['roomful@control', 'roomful@dataplane'])
    for (const service of services) await start(service)
    await answers('roomful@control', CONTROL_PORT, '/readyz')
    await answers('roomful@dataplane', ADMIN_PORT, '/readyz')

    expect(await type(block('projects create'))).toEqual(['enable --now game-backend', 'reload caddy'])
    expect(await readFile(etc('game/backend.env'), 'utf8')).not.toMatch(/^\w+=$/m)
    await start('game-backend')
    await backendAnswers()
  })

  it('serves the game over TLS, and coins arrive once although the backend was away', async () => {
    const caddy = programOr('caddy')
    const global = '{\n\tadmin off\n\tauto_https disable_redirects\n\tskip_install_trust\n}\n'
    const site = here(await readFile(etc('caddy/Caddyfile'), 'utf8'))
      .replace('play.example.com {', `https://localhost:${ports.CADDY} {\n\ttls internal`)
      .replace(':4000', `:${ports.WS_PORT}`)
      .replace(':8080', `:${ports.PORT}`)
    const file = join(machine, 'Caddyfile')
    await writeFile(file, global + site)
    const home = `XDG_DATA_HOME=${machine}/data XDG_CONFIG_HOME=${machine}/data`
    running.set(
      'caddy',
      startTyped(`exec env ${home} ${caddy} run --config ${file} --adapter caddyfile`, machine),
    )
    browser = await launchChromium()
    const [ada, bob] = await Promise.all([open(), open()])

    await ada.click('#open')
    await bob.click('#games button')
    await bob.waitForSelector('#quiz:not([hidden])')
    running.get('game-backend')!.child.kill('SIGTERM')
    await running.get('game-backend')!.ended
    await ada.click('#start')
    running.get('roomful@dataplane')!.child.kill('SIGHUP')
    await Promise.all([play(ada, 1), play(bob, 2)])
    await running.get('roomful@dataplane')!.said(RELOADED)
    await start('game-backend')
    await backendAnswers()
    for (const page of [ada, bob]) {
      const you = await page.textContent('#players li:has-text("(you)")')
      const points = /: (\d)/.exec(you!)![1]
      await expect.poll(() => page.textContent('#coins')).toBe(`Coins: ${points}`)
      // The error while the backend was away is no longer shown.
      await expect.poll(() => page.textContent('#status')).toBe('')
    }
  })

  /** Opens the game as a new guest. */
  async function open(): Promise<Page> {
    const context = await browser!.newContext({ ignoreHTTPSErrors: true })
    const page = await context.newPage()
    const address = `https://localhost:${ports.CADDY}/`
    await expect.poll(() => page.goto(address).then(() => true, String)).toBe(true)
    await page.waitForSelector('#lobby:not([hidden])')
    return page
  }

  /** Answers each question until the quiz is over. A question without an answer ends after 15 s, so a slow page may miss some. */
  async function play(page: Page, choice: number): Promise<void> {
    const open = `#choices button:nth-child(${choice}):enabled`
    for (;;) {
      const over = page.locator('#question', { hasText: 'Well played!' })
      await page.locator(open).or(over).first().waitFor({ timeout: 180_000 })
      if (await over.isVisible()) return
      await page.click(open, { timeout: 1000 }).catch(() => undefined)
      await page.locator(open).waitFor({ state: 'detached' })
    }
  }
})
