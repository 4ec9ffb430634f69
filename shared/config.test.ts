import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, it } from 'vitest'
import { VARIABLES, variables } from './config/variables.ts'
import {
  defaultTurnLimit,
  describeProblems,
  describeVariables,
  type Environment,
  type Parsed,
  parseConfig,
} from './config.ts'
import { tracingConfig } from './tracing/open.ts'

const REDIS = { REDIS_URL: 'redis://127.0.0.1:6379', ROOMS_DIR: '/opt/rooms' }
const SECRETS = {
  KEYRING_SECRET: 'dGhlIHNlY3JldCBvZiB0aGUga2V5cmluZw==',
  INTERNAL_TOKEN: 'c3VtbWVyLWZpZWxkLW1vcm5pbmc=',
}
const OPERATOR = 'b3BlcmF0b3Itb2YtdGhlLXRlc3Rz'

function config<C>(parsed: Parsed<C>): C {
  if (!parsed.ok) throw new Error(describeProblems(parsed))
  return parsed.config
}

const problems = (parsed: Parsed<unknown>) => (parsed.ok ? [] : parsed.problems)
const named = (parsed: Parsed<unknown>) => problems(parsed).map((problem) => problem.name)

describe('control configuration', () => {
  it('has a value for each variable of the command, and for no other', () => {
    const { controlHost, controlPort, controlApiTokens, requireKeyId, ...rest } = config(
      parseConfig('control', REDIS),
    )
    expect([controlHost, controlPort, controlApiTokens, requireKeyId]).toEqual([
      '127.0.0.1',
      3000,
      undefined,
      false,
    ])
    expect(rest).toMatchObject({ redisUrl: REDIS.REDIS_URL, keyPrefix: 'roomful:' })
    expect(rest).not.toHaveProperty('ws_port')
  })

  it('requires a Redis', () => {
    expect(named(parseConfig('control', {}))).toEqual(['REDIS_URL'])
  })

  it('splits operator tokens at commas', () => {
    const parsed = parseConfig('control', { ...REDIS, CONTROL_API_TOKENS: 'one, two ,' })
    expect(config(parsed).controlApiTokens).toEqual(['one', 'two'])
  })

  it('refuses an open API on other addresses than loopback, unless the configuration allows it', () => {
    const env = { ...REDIS, ...SECRETS, CONTROL_HOST: '0.0.0.0' }
    expect(named(parseConfig('control', env))).toEqual(['CONTROL_HOST'])
    const open = parseConfig('control', { ...env, CONTROL_API_TOKENS: 'none' })
    expect(config(open).controlApiTokens).toBe('none')
    expect(config(parseConfig('control', { ...env, CONTROL_API_TOKENS: 'None' })).controlApiTokens).toBe(
      'none',
    )
    expect(named(parseConfig('control', { ...env, CONTROL_API_TOKENS: `${OPERATOR},none` }))).toContain(
      'CONTROL_API_TOKENS',
    )
    expect(config(parseConfig('control', { ...env, CONTROL_API_TOKENS: OPERATOR })).controlHost).toBe(
      '0.0.0.0',
    )
  })

  it('refuses unsealed private keys on other addresses than loopback', () => {
    const env = { ...REDIS, CONTROL_HOST: '::', CONTROL_API_TOKENS: OPERATOR }
    expect(named(parseConfig('control', env))).toEqual(['KEYRING_SECRET'])
  })

  it.each(['127.0.0.1', '127.8.8.8', 'localhost', '::1'])('takes %s for this machine only', (host) => {
    expect(config(parseConfig('control', { ...REDIS, CONTROL_HOST: host })).controlHost).toBe(host)
  })

  it('ignores variables of other commands', () => {
    expect(config(parseConfig('control', { ...REDIS, WS_PORT: 'many' })).controlPort).toBe(3000)
  })
})

describe('dataplane configuration', () => {
  it('parses numbers, words and lists', () => {
    expect(config(parseConfig('dataplane', REDIS))).toMatchObject({
      wsPort: 4000,
      nodeLeaseMs: 2000,
      trustedProxies: ['private'],
      nodeId: undefined,
      controlUrl: 'http://127.0.0.1:3000',
    })
  })

  it('reads every variable', () => {
    const parsed = parseConfig('dataplane', {
      ...REDIS,
      ...SECRETS,
      WS_HOST: '0.0.0.0',
      WS_PORT: '0',
      ALLOWED_ORIGINS: 'https://*.example.com,http://localhost:8080',
      NODE_ID: 'node-7',
      ADVERTISE_URL: 'wss://node-7.example.com/play',
      REQUIRE_KEY_ID: '1',
    })
    expect(config(parsed)).toMatchObject({
      wsHost: '0.0.0.0',
      wsPort: 0,
      allowedOrigins: ['https://*.example.com', 'http://localhost:8080'],
      nodeId: 'node-7',
      advertiseUrl: 'wss://node-7.example.com/play',
      requireKeyId: true,
    })
    expect(parsed.warnings).toEqual([])
  })

  it('limits a turn so that it ends well before the lease of its node', () => {
    expect([500, 2000, 60_000].map(defaultTurnLimit)).toEqual([200, 800, 800])
    const set = parseConfig('dataplane', { ...REDIS, NODE_LEASE_MS: '60000', TURN_LIMIT_MS: '24000' })
    expect(config(set).turnLimitMs).toBe(24_000)
    const late = parseConfig('dataplane', { ...REDIS, TURN_LIMIT_MS: '801' })
    expect(late.ok || describeProblems(late)).toContain(
      'TURN_LIMIT_MS is 801, more than 0.4 × NODE_LEASE_MS (2000); expected: 800 or less',
    )
  })

  it('warns about a node without an internal token', () => {
    expect(parseConfig('dataplane', REDIS).warnings).toEqual([
      expect.stringContaining('INTERNAL_TOKEN is not set'),
    ])
  })
})

describe('NOTIFY_URL', () => {
  const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
  const read = (NOTIFY_URL: string, NOTIFY_SECRET?: string) =>
    parseConfig('dataplane', { ...REDIS, ROOMS_DIR: 'rooms', NOTIFY_URL, NOTIFY_SECRET })

  it('is read with one or more secrets of Standard Webhooks', () => {
    const { notifyUrl, notifySecret } = config(
      read('https://api.example.com/notices', `${secret}, ${secret}`),
    )
    expect([notifyUrl, notifySecret]).toEqual(['https://api.example.com/notices', [secret, secret]])
  })

  it('requires NOTIFY_SECRET', () => {
    expect(problems(read('https://api.example.com'))).toMatchObject([
      { name: 'NOTIFY_SECRET', was: 'not set while NOTIFY_URL is set' },
    ])
  })

  it.each([
    ['NOTIFY_URL', 'ftp://example.com', secret],
    ['NOTIFY_URL', 'https://user:word@example.com', secret],
    ['NOTIFY_SECRET', 'https://example.com', secret.slice('whsec_'.length)],
    ['NOTIFY_SECRET', 'https://example.com', `whsec_${Buffer.alloc(23).toString('base64')}`],
    ['NOTIFY_SECRET', 'https://example.com', `whsec_${Buffer.alloc(65).toString('base64')}`],
  ])('is checked at the start: %s is wrong for %s and %s', (name, url, value) => {
    expect(problems(read(url, value)).map((problem) => problem.name)).toEqual([name])
  })
})

describe('a guessable secret', () => {
  const weak = 'changemechangemechangeme'
  const env = {
    ...REDIS,
    CONTROL_API_TOKENS: `${OPERATOR},short`,
    KEYRING_SECRET: weak,
    INTERNAL_TOKEN: '1'.repeat(40),
  }

  it('keeps a process from starting on an address that other machines reach, and the errors name each secret', () => {
    const control = parseConfig('control', { ...env, CONTROL_HOST: '0.0.0.0' })
    expect(problems(control)).toEqual([
      {
        name: 'CONTROL_API_TOKENS',
        was: expect.stringContaining('value 2: it has 5 characters'),
        mayBe: expect.any(String),
      },
      {
        name: 'KEYRING_SECRET',
        was: expect.stringContaining('it repeats itself'),
        mayBe: expect.any(String),
      },
      {
        name: 'INTERNAL_TOKEN',
        was: expect.stringContaining('it repeats itself'),
        mayBe: expect.stringContaining('24 random'),
      },
    ])
    expect(JSON.stringify(control)).not.toContain('changeme')
    for (const host of ['WS_HOST', 'ADMIN_HOST'])
      expect(named(parseConfig('dataplane', { ...env, [host]: '::' }))).toEqual(['INTERNAL_TOKEN'])
    expect(named(parseConfig('dev', { ...env, CONTROL_HOST: '192.0.2.1' }))).toHaveLength(3)
  })

  it('causes only a warning on loopback', () => {
    const { ok, warnings } = parseConfig('control', env)
    expect(ok).toBe(true)
    expect(warnings.map((warning) => warning.split(' ')[0])).toEqual([
      'CONTROL_API_TOKENS',
      'KEYRING_SECRET',
      'INTERNAL_TOKEN',
    ])
    expect(parseConfig('dev', env)).toMatchObject({ ok: true, warnings: [] })
  })

  it('is accepted after a strong secret that seals', () => {
    const keyring = { ...env, ...SECRETS, KEYRING_SECRET: `${SECRETS.KEYRING_SECRET},${weak}` }
    expect(
      parseConfig('control', { ...keyring, CONTROL_API_TOKENS: OPERATOR, CONTROL_HOST: '::' }),
    ).toMatchObject({
      ok: true,
      warnings: [],
    })
  })

  it.each([
    [`${'a'.repeat(23)}B`],
    ['0123456789abcdef0123456789abcdef'],
    ['314159265358979323846264338327'],
    ['thequickbrownfoxjumpsoverit'.slice(0, 23)],
    ['abababababababababababababababab'],
  ])('is %s', (secret) => {
    expect(named(parseConfig('dataplane', { ...REDIS, WS_HOST: '::', INTERNAL_TOKEN: secret }))).toEqual([
      'INTERNAL_TOKEN',
    ])
  })

  it.each([
    ['what openssl makes of 32 bytes', 'kPq0m1bG5cT9f8Z2xV7yWn4RsLh3JdQaE6uXoYtIgB0='],
    ['hexadecimal digits of 16 bytes', '9f86d081884c7d659a2feaa0c55ad015'],
    ['24 letters and digits', 'q7TgK2mZx9RwB4nVc8LpYd3H'],
    ['a phrase', 'seven-lazy-otters-paint-the-moon'],
  ])('is not %s', (_, secret) => {
    expect(parseConfig('dataplane', { ...REDIS, WS_HOST: '::', INTERNAL_TOKEN: secret }).ok).toBe(true)
  })
})

describe('dev configuration', () => {
  it('needs no variable, and uses only this machine', () => {
    const dev = config(parseConfig('dev', {}))
    expect(dev.redisUrl).toBeUndefined()
    expect(dev.examplesPort).toBe(8080)
    expect([dev.controlHost, dev.wsHost, dev.adminHost]).toEqual(Array(3).fill('127.0.0.1'))
    expect(parseConfig('dev', {}).warnings).toEqual([])
  })
})

describe('problems', () => {
  it('are all listed, each with its name, its value and the allowed values', () => {
    const parsed = parseConfig('dataplane', {
      WS_PORT: '99999',
      ADMIN_PORT: '-1',
      REDIS_URL: 'http://nowhere',
      LOG_LEVEL: 'loud',
      REQUIRE_KEY_ID: 'yes',
      WS_HOST: '1.2.3.400',
      ALLOWED_ORIGINS: 'example.com',
    })
    expect(problems(parsed)).toEqual([
      { name: 'WS_HOST', was: '"1.2.3.400"', mayBe: expect.stringContaining('an IP address') },
      { name: 'WS_PORT', was: '"99999"', mayBe: 'a port, 0–65535 (0: any free one)' },
      { name: 'ADMIN_PORT', was: '"-1"', mayBe: 'a port, 0–65535 (0: any free one)' },
      { name: 'ROOMS_DIR', was: 'not set', mayBe: 'the path of a folder' },
      { name: 'ALLOWED_ORIGINS', was: '"example.com"', mayBe: expect.stringContaining('origins such as') },
      {
        name: 'REDIS_URL',
        was: expect.stringContaining('not shown'),
        mayBe: expect.stringContaining('redis://'),
      },
      { name: 'REQUIRE_KEY_ID', was: '"yes"', mayBe: '1 (yes) or 0 (no)' },
      { name: 'LOG_LEVEL', was: '"loud"', mayBe: 'trace, debug, info, warn, error, fatal, silent' },
    ])
    expect(parsed.ok ? '' : describeProblems(parsed)).toContain('WS_PORT is "99999"; expected: a port')
  })

  it('never show a secret', () => {
    const parsed = parseConfig('control', {
      REDIS_URL: 'postgres://user:hunter2@db',
      INTERNAL_TOKEN: 'hunter2 with spaces',
      CONTROL_API_TOKENS: 'hunter2 too',
    })
    expect(named(parsed)).toEqual(['CONTROL_API_TOKENS', 'INTERNAL_TOKEN', 'REDIS_URL'])
    expect(JSON.stringify(parsed)).not.toContain('hunter2')
  })

  it('treat an empty variable as not set', () => {
    expect(
      config(parseConfig('dev', { CONTROL_PORT: '', REDIS_URL: '', KEYRING_SECRET: '' })).controlPort,
    ).toBe(3000)
  })

  it('name Kubernetes as the source of a variable that it has set', () => {
    const parsed = parseConfig('control', { ...REDIS, CONTROL_PORT: 'tcp://10.0.0.7:3000' })
    expect(problems(parsed)[0]?.was).toContain('enableServiceLinks')
  })
})

describe('NAME_FILE', () => {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-config-'))
  afterAll(() => rmSync(folder, { recursive: true }))
  const file = (name: string, content: string) => {
    writeFileSync(join(folder, name), content)
    return join(folder, name)
  }

  it('reads a secret from a file, without the line break at its end', () => {
    const parsed = parseConfig('control', { ...REDIS, KEYRING_SECRET_FILE: file('keyring', 'from a file\n') })
    expect(config(parsed).keyringSecret).toBe('from a file')
  })

  it('is read for required variables and for those that are not secret', () => {
    const env: Environment = {
      REDIS_URL_FILE: file('redis', 'redis://r:6379\n'),
      CONTROL_PORT_FILE: file('port', '4\n'),
    }
    expect(config(parseConfig('control', env))).toMatchObject({
      controlPort: 4,
      redisUrl: 'redis://r:6379',
    })
  })

  it('is refused together with NAME', () => {
    const parsed = parseConfig('control', {
      ...REDIS,
      INTERNAL_TOKEN: 'a',
      INTERNAL_TOKEN_FILE: file('both', 'b'),
    })
    expect(problems(parsed)).toEqual([
      {
        name: 'INTERNAL_TOKEN',
        was: 'set, and INTERNAL_TOKEN_FILE as well',
        mayBe: 'set directly or by INTERNAL_TOKEN_FILE, not both',
      },
    ])
    expect(parsed.warnings.filter((warning) => warning.includes('INTERNAL_TOKEN'))).toEqual([])
  })

  it('with an error does not cause a second problem about a missing secret', () => {
    const both = { KEYRING_SECRET: OPERATOR, KEYRING_SECRET_FILE: file('keyring-both', OPERATOR) }
    const parsed = parseConfig('control', {
      ...REDIS,
      CONTROL_HOST: '0.0.0.0',
      CONTROL_API_TOKENS: OPERATOR,
      ...both,
    })
    expect(problems(parsed).map(({ was }) => was)).toEqual(['set, and KEYRING_SECRET_FILE as well'])
  })

  it.each([
    ['begins with a byte order mark', '\ufeffa secret', 'byte order mark'],
    ['has blanks only', ' \n\n', 'white space'],
    ['has a second line break at its end', 'a-secret\n\n', 'more than one line break'],
    ['ends with a blank', 'a-secret \n', 'ends with white space'],
    ['ends with a tab and a line break of Windows', 'a-secret\t\r\n', 'ends with white space'],
    ['begins with a blank', ' a-secret\n', 'begins with white space'],
    ['has two lines', 'a-secret\nanother\n', 'more than one line'],
    ['has quotes', '"a-secret"\n', 'in quotes'],
    ['has single quotes and a blank', "'a-secret' \n", 'in quotes'],
  ])('causes an error if the file %s', (_, content, words) => {
    const parsed = parseConfig('control', { ...REDIS, INTERNAL_TOKEN_FILE: file('odd', content) })
    expect(problems(parsed)).toEqual([
      expect.objectContaining({ name: 'INTERNAL_TOKEN_FILE', was: expect.stringContaining(words) }),
    ])
  })

  it('has no second message for the parser of Redis addresses: a blank behind the address is the cause', () => {
    const parsed = parseConfig('control', { REDIS_URL_FILE: file('blank', 'redis://r:6379 \n') })
    expect(problems(parsed)).toEqual([
      expect.objectContaining({ was: expect.stringContaining('ends with white space: remove it') }),
    ])
  })

  it('may have JSON of several lines in it', () => {
    const json = JSON.stringify(
      { issuer: 'i', jwks: 'https://login.example.com/keys', audience: 'game', project: 'prj_a' },
      null,
      2,
    )
    const parsed = parseConfig('dataplane', {
      ...REDIS,
      ROOMS_DIR: 'rooms',
      AUTH_JWKS_FILE: file('jwks', `${json}\n\n`),
    })
    expect(config(parsed).authJwks).toHaveLength(1)
  })

  it('must name a readable file that is not empty', () => {
    const missing = join(folder, 'missing')
    const parsed = parseConfig('control', { REDIS_URL_FILE: missing, KEYRING_SECRET_FILE: file('empty', '') })
    expect(problems(parsed).map(({ name, was }) => [name, was])).toEqual([
      ['KEYRING_SECRET_FILE', expect.stringContaining('which is empty')],
      ['REDIS_URL_FILE', `${JSON.stringify(missing)} (ENOENT)`],
    ])
  })
})

describe('a secret in a variable', () => {
  it.each([
    ['INTERNAL_TOKEN', '"a-secret"', 'in quotes'],
    ['INTERNAL_TOKEN', "'a-secret'", 'in quotes'],
    ['REDIS_URL', 'redis://:hunter2@r:6379 ', 'ends with white space'],
    ['REDIS_URL', '"redis://:hunter2@r:6379"', 'in quotes'],
    ['KEYRING_SECRET', 'hunter2\n', 'line break'],
    ['CONTROL_API_TOKENS', ' hunter2', 'begins with white space'],
  ])('%s = %j: the error names the cause and not the secret', (name, value, words) => {
    const parsed = parseConfig('control', { ...REDIS, [name]: value })
    const [problem, ...others] = problems(parsed)
    expect([problem?.name, others]).toEqual([name, []])
    expect(problem?.was).toContain(words)
    expect(JSON.stringify(parsed)).not.toContain('hunter2')
  })
})

describe('a variable with several secrets', () => {
  const keyring = (KEYRING_SECRET: string) =>
    parseConfig('control', { ...REDIS, CONTROL_API_TOKENS: 'o', KEYRING_SECRET })

  it.each(['one', 'new,old', 'a b,c d'])('may be %j', (value) => {
    expect(config(keyring(value)).keyringSecret).toBe(value)
  })

  it.each([' ', ',', 'new,', ',old', 'new,,old', 'new, old', 'new ,old', 'new,\nold'])(
    'is refused as %j: a space after the comma would belong to the secret',
    (value) => {
      const [problem] = problems(keyring(value))
      expect(problem).toMatchObject({
        name: 'KEYRING_SECRET',
        mayBe: expect.stringContaining('commas without spaces'),
      })
    },
  )

  it('is refused with spaces if it is sent in a header', () => {
    const wrong = parseConfig('control', { ...REDIS, INTERNAL_TOKEN: 'new, old' })
    expect(problems(wrong)).toMatchObject([
      { name: 'INTERNAL_TOKEN', mayBe: expect.stringContaining('without spaces, separated by commas') },
    ])
  })
})

describe('unknown variables', () => {
  const warnings = (env: Environment) => parseConfig('dev', env).warnings

  it.each([
    ['WS_PROT', 'WS_PORT'],
    ['SESSION_TTL', undefined],
    ['SESSION_RESUME_TLL', 'SESSION_RESUME_TTL'],
    ['KEYRING_SECRETS', 'KEYRING_SECRET'],
    ['REDIS_URI', 'REDIS_URL'],
    ['NODE_LEASE', 'NODE_LEASE_MS'],
    ['INTERNAL_TOKEN_FLE', 'INTERNAL_TOKEN_FILE'],
    ['KEYRNIG_SECRET', 'KEYRING_SECRET'],
    ['NODE_COLOUR', undefined],
    ['OTEL_TRACES_EXPORTR', 'OTEL_TRACES_EXPORTER'],
  ])('%s causes a warning about a typo (%s)', (name, suggestion) => {
    const [warning, ...more] = warnings({ [name]: 'x' })
    expect(more).toEqual([])
    expect(warning).toContain(`${name} is set`)
    if (suggestion === undefined) expect(warning).not.toContain('Did you mean')
    else expect(warning).toContain(`Did you mean ${suggestion}?`)
  })

  it.each([
    'NODE',
    'NODE_ENV',
    'NODE_OPTIONS',
    'NODE_EXTRA_CA_CERTS',
    'NODE_VERSION',
    'PATH',
    'HOME',
    'PORT',
    'REDIS_SERVICE_HOST',
    'REDIS_PORT_6379_TCP_ADDR',
    'npm_config_cache',
    'OTEL_METRICS_EXPORTER',
    'OTEL_LOGS_EXPORTER',
    'OTEL_RESOURCE_ATTRIBUTES',
    'OTEL_EXPORTER_OTLP_PROTOCOL',
    'OTEL_EXPORTER_OTLP_TIMEOUT',
    'OTEL_BSP_SCHEDULE_DELAY',
  ])('%s belongs to another program, and causes no warning', (name) => {
    expect(warnings({ [name]: 'x' })).toEqual([])
  })

  it('with the name of a fixed limit cause a warning about that', () => {
    for (const name of ['OUTBOX_LIMIT_BYTES', 'MAX_UNACKED_MESSAGES', 'MAX_ROOM_TASKS'])
      expect(warnings({ [name]: '5' })).toEqual([expect.stringMatching(`^${name} is set, .* fixed limit`)])
  })

  it('do not keep a process from starting', () => {
    expect(parseConfig('dev', { WS_PROT: '1' }).ok).toBe(true)
  })
})

describe('traces', () => {
  const tracing = (env: Environment, read?: (path: string) => string) =>
    tracingConfig(config(parseConfig('dev', env, read)), 'roomful-dataplane')
  const ON = { OTEL_TRACES_EXPORTER: 'otlp' }

  it('are on if the environment configures them, with headers that may come from a file', () => {
    expect(tracing({})).toBeUndefined()
    expect(named(parseConfig('dev', { OTEL_TRACES_EXPORTER: 'zipkin' }))).toEqual(['OTEL_TRACES_EXPORTER'])
    expect(tracing({ ...ON, OTEL_EXPORTER_OTLP_HEADERS_FILE: '/h' }, () => 'a=1')).toEqual({
      serviceName: 'roomful-dataplane',
      headers: 'a=1',
    })
  })
})

describe('the help', () => {
  it('lists variables with at most 100 characters per line', () => {
    const help = describeVariables(variables())
    for (const name of Object.keys(VARIABLES)) expect(help).toMatch(new RegExp(`^ {2}${name} `, 'm'))
    expect(Math.max(...help.split('\n').map((line) => line.length))).toBeLessThanOrEqual(100)
  })

  it('has defaults that are valid', () => {
    expect(problems(parseConfig('dataplane', { ...REDIS }))).toEqual([])
  })
})
