import { execFile } from 'node:child_process'
import { cp, mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { parseConfig } from '../../shared/config.ts'
import { mayInstall, programOr } from '../../test/support/debian-package.ts'
import { redisFile } from '../../test/support/redis-server.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { environmentIn, unitCredentials, unitEnvironment, unitSettings } from '../../test/support/units.ts'
import { findProgram } from '../local/machine.ts'

const run = promisify(execFile)
const folder = fileURLToPath(new URL('.', import.meta.url))
const read = (name: string) => readFile(join(folder, name), 'utf8')

const UNITS = [
  { unit: 'roomful-control@.service', command: 'control', settings: 'control-1.env', credentials: 5 },
  { unit: 'roomful-node@.service', command: 'dataplane', settings: 'node-1.env', credentials: 3 },
] as const

/** Folder of a unit's credentials in systemd: the value of `%d`. */
const CREDENTIALS = '/run/credentials/unit'

const analyzer = findProgram(['systemd-analyze'], process.env.PATH) ?? (mayInstall() ? 'install' : undefined)
if (analyzer === undefined)
  process.stderr.write('skipped: systemd does not check the units, there is no systemd-analyze\n')

describe.each(UNITS)('$unit', ({ unit, command, settings, credentials }) => {
  it.skipIf(analyzer === undefined)('is a valid unit for systemd, with a low exposure', async () => {
    const systemdAnalyze = programOr('systemd-analyze', 'systemd')
    // systemd looks for the program, so this machine's Node replaces that of the package.
    const place = await newFolder()
    const file = join(place, unit)
    await writeFile(file, (await read(unit)).replace('/usr/bin/node', process.execPath))
    const verified = await run(systemdAnalyze, ['verify', '--recursive-errors=no', file])
    expect(verified.stdout + verified.stderr).toBe('')
    // 0 exposes nothing, 10 everything. A service without these settings has more than 9.
    await run(systemdAnalyze, ['security', '--offline=yes', '--threshold=20', '--no-pager', file])
  })

  it('gives its process a valid configuration, without a warning', async () => {
    const of = await unitSettings(unit)
    const handed = unitCredentials(of)
    expect(handed.size).toBe(credentials)
    const env = {
      ...unitEnvironment(of, { d: CREDENTIALS, H: 'host-1', i: '1' }),
      ...environmentIn(await read('roomful.env')),
      ...environmentIn(await read(settings)),
    }
    const readFile = (path: string) => {
      const source = handed.get(path.replace(`${CREDENTIALS}/`, ''))
      if (source === undefined) throw new Error(`${path} is no credential`)
      if (source.endsWith('notify-secret')) return `whsec_${Buffer.alloc(32, 7).toString('base64')}`
      return source.endsWith('redis-url') ? 'redis://127.0.0.1:6379' : 'a-secret-of-32-characters-or-more'
    }
    const parsed =
      command === 'control' ? parseConfig('control', env, readFile) : parseConfig('dataplane', env, readFile)
    expect(parsed).toMatchObject({ ok: true, warnings: [] })
    if (!parsed.ok) return
    const seconds = Number(of('TimeoutStopSec')[0])
    if ('drainSeconds' in parsed.config)
      expect(seconds).toBeGreaterThanOrEqual(parsed.config.drainSeconds + 15)
    else expect(seconds).toBeGreaterThanOrEqual(20)
  })

  it('is started again after any number of failures', async () => {
    const of = await unitSettings(unit)
    expect([of('StartLimitIntervalSec'), of('StartLimitBurst')]).toEqual([['0'], []])
    expect(Number(of('RestartSec')[0])).toBeGreaterThan(0)
  })

  it('runs the command of the package, and is restarted if that can help', async () => {
    const of = await unitSettings(unit)
    const { bin } = JSON.parse(await readFile(join(folder, '../../package.json'), 'utf8'))
    expect(of('ExecStart')).toEqual([
      `/usr/bin/node /opt/roomful/node_modules/roomful/${bin.roomful} ${command}`,
    ])
    expect([of('Restart'), of('RestartPreventExitStatus'), of('KillSignal')]).toEqual([
      ['on-failure'],
      ['2'],
      ['SIGTERM'],
    ])
    expect(Number(of('LimitNOFILE')[0])).toBeGreaterThan(20_000)
  })
})

describe('the files beside the units', () => {
  it('are copied by the commands of the README to the paths in the units', async () => {
    const readme = await readFile(join(folder, '../README.md'), 'utf8')
    const section = readme.split('\n## systemd\n')[1]!.split('\n## ')[0]!
    const commands = section.match(/```sh\n# files\n(.*?)```/s)![1]!
    const place = await newFolder()
    await mkdir(join(place, 'etc/systemd/system'), { recursive: true })
    await mkdir(join(place, 'deploy'))
    await cp(folder, join(place, 'deploy/systemd'), { recursive: true })
    await cp(join(folder, '../redis'), join(place, 'deploy/redis'), { recursive: true })
    const here = (block: string) => block.replaceAll('sudo ', '').replaceAll('/etc/', `${place}/etc/`)
    const script = here(commands)
    const keyring = () => readFile(join(place, 'etc/roomful/secrets/keyring'), 'utf8')
    await run('sh', ['-ec', script], { cwd: place })
    const made = await keyring()
    expect(made).toMatch(/^[A-Za-z0-9+/]{43}=\n$/)
    // Repeated by a person who installs a new version, the command must not replace the signing keys.
    await run('sh', ['-ec', script], { cwd: place })
    expect(await keyring()).toBe(made)
    const [, redisCommands] = section.match(/```sh\n# redis\n(.*?)```/s)!
    await run('sh', ['-ec', here(redisCommands!)], { cwd: place })
    const secret = async (name: string) =>
      (await readFile(join(place, 'etc/roomful/secrets', name), 'utf8')).trim()
    const passwords: Record<string, string> = {}
    for (const plane of ['control', 'node']) {
      const { username, password } = new URL(await secret(`${plane}-redis-url`))
      passwords[username] = password
    }
    for (const user of ['operator', 'health', 'replica', 'sentinel'])
      passwords[user] = await secret(`redis-${user}`)
    for (const name of ['users.acl', 'redis.conf', 'sentinel.conf'] as const) {
      const text = redisFile(name).replaceAll(/password-of-([a-z-]+)/g, (_, user) => passwords[user]!)
      const written = await readFile(join(place, 'etc/redis', name), 'utf8')
      expect(written, name).toBe(text)
    }
    for (const { unit } of UNITS) {
      const of = await unitSettings(unit)
      const files = [
        ...of('EnvironmentFile').map((one) => one.replace(/^-/, '').replace('%i', '1')),
        ...unitCredentials(of).values(),
      ]
      for (const file of [...files, `/etc/systemd/system/${unit}`])
        expect((await readFile(join(place, file), 'utf8')).length, file).toBeGreaterThan(0)
    }
  })
})
