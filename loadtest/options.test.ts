import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { LIMIT_KINDS } from './judge.ts'
import { COMMON_OPTIONS, help, obstacles, parseRun, type RunOptions, type TargetOptions } from './options.ts'
import { dryRun } from './scenario.ts'
import { SCENARIOS } from './scenarios/index.ts'

const parse = (words: string[], env: Record<string, string> = {}) => parseRun(words, SCENARIOS, env, 8)

function run(words: string[], env?: Record<string, string>): RunOptions {
  const request = parse(words, env)
  if (request.kind !== 'run') throw new Error(JSON.stringify(request))
  return request.options
}
const target = (words: string[], env?: Record<string, string>) => run(words, env).target as TargetOptions
const mistake = (...words: string[]): string => {
  const request = parse(words)
  return request.kind === 'mistake' ? request.message : `no mistake but ${request.kind}`
}

describe('a run', () => {
  it('uses the addresses of the documentation by default', () => {
    expect(run(['steady'])).toMatchObject({
      values: { rooms: 20, members: 10, rate: 5, seconds: 30, ramp: 100 },
      target: {
        controlUrl: 'http://127.0.0.1:3000',
        controlToken: undefined,
        wsUrls: ['ws://127.0.0.1:4000'],
        metrics: [],
      },
      threads: 4,
      roomType: 'load',
      message: undefined,
      out: 'loadtest-report',
      limits: {},
    })
  })

  it('reads values in their units, any number of addresses, and limits', () => {
    const words = 'steady --rooms 5 --rate 0.5 --seconds 2min --max-rtt-p99 150ms --max-errors=0 --out there'
    const options = run(words.split(' '))
    expect(options.values).toMatchObject({ rooms: 5, rate: 0.5, seconds: 120 })
    expect(options.limits).toEqual({ 'max-rtt-p99': 150, 'max-errors': 0 })
    expect(options.out).toBe('there')
    expect(run(['slow-consumers', '--share', '25%']).values.share).toBe(0.25)
    const { wsUrls, metrics } = target(
      'steady --control http://c --ws ws://a:1,ws://b:2/ --ws wss://c --metrics http://n1:9100/metrics,http://n2:9100'.split(
        ' ',
      ),
    )
    expect(wsUrls).toEqual(['ws://a:1', 'ws://b:2', 'wss://c'])
    expect(metrics).toEqual([
      { name: 'n1:9100', url: 'http://n1:9100' },
      { name: 'n2:9100', url: 'http://n2:9100' },
    ])
  })

  it('reads the operator token from a variable or a file of the environment', () => {
    const folder = mkdtempSync(join(tmpdir(), 'roomful-'))
    writeFileSync(join(folder, 'tokens'), 'from-file,another\n')
    expect(target(['steady'], { CONTROL_API_TOKENS: 'one,two' }).controlToken).toBe('one')
    expect(target(['steady'], { CONTROL_API_TOKENS_FILE: join(folder, 'tokens') }).controlToken).toBe(
      'from-file',
    )
    expect(target(['steady', '--control-token', 'given'], { CONTROL_API_TOKENS: 'one' }).controlToken).toBe(
      'given',
    )
    rmSync(folder, { recursive: true })
  })

  it('accepts a custom room type', () => {
    expect(run(['steady', '--room-type', 'arena', '--message', 'move:{"x":1,"y":[":"]}'])).toMatchObject({
      roomType: 'arena',
      message: { type: 'move', data: { x: 1, y: [':'] } },
    })
  })

  it('starts nodes for the run', () => {
    expect(run(['node-kill', '--local', '3']).target).toBe(3)
  })
})

describe('a mistake gets an error with what would be right', () => {
  it.each([
    [['stedy'], 'stedy is no scenario (steady?); there are steady, connect-storm'],
    [['3'], '3 is no scenario; there are steady, connect-storm'],
    [['--local', '3', 'steady'], 'The scenario comes first, before --local; there are steady'],
    [['steady', '--foo', '1'], '--foo is no option of steady; npm run'],
    [['steady', '--roms', '1'], '--roms is no option of steady (--rooms?); npm run'],
    [['steady', '--max-rtt', '1s'], '(--max-rtt-mean, --max-rtt-p50, --max-rtt-p90, …?)'],
    [['steady', '--storms', '1'], '--storms is no option of steady'],
    [['steady', '12'], '12 is one word too many'],
    [['steady', '--rooms'], '--rooms needs a value'],
    [['steady', '--rooms', '1', '--rooms', '2'], '--rooms is given 2 times'],
    [['steady', '--rooms', '0'], '--rooms is "0"; expected: a whole number from 1 to 999999999'],
    [['steady', '--rate', '-1'], '--rate'],
    [['steady', '--rooms', '1e9'], '--rooms is "1e9"'],
    [['steady', '--seconds', '5m'], '--seconds is "5m"; expected: a number of seconds above 0, or with'],
    [['steady', '--seconds', '0'], '--seconds is "0"; expected: a number of seconds above 0'],
    [['slow-consumers', '--share', '2'], '--share is "2"; expected: a share above 0, such as 0.25 or 25%'],
    [['slow-consumers', '--share', '0%'], '--share is "0%"; expected: a share above 0'],
    [['steady', '--ws', ','], '--ws is ","; expected: a URL'],
    [
      ['steady', '--ws', 'ws://game.example.com'],
      '--ws is "ws://game.example.com", but its tokens would come from http://127.0.0.1:3000: add --control',
    ],
    [
      ['steady', '--control', 'http://game.example.com'],
      '--control is "http://game.example.com", but clients would connect to ws://127.0.0.1:4000: add --ws',
    ],
    [['steady', '--threads', '1.5'], '--threads is "1.5"; expected: 1 to 64'],
    [['steady', '--ws', 'localhost:4000'], '--ws is "localhost:4000"; expected: a URL with ws:// or wss://'],
    [['steady', '--control', 'ws://a'], '--control is "ws://a"; expected: a URL with http:// or https://'],
    [['steady', '--project', 'prj_1'], '--project and --token belong together'],
    [['steady', '--room-type', 'arena'], '--room-type and --message belong together'],
    [
      ['steady', '--room-type', 'a', '--message', 'move'],
      '--message is "move"; expected: a message type, a colon',
    ],
    [['steady', '--local', '10'], '--local is "10"; expected: 1 to 9'],
    [['steady', '--local', '2', '--ws', 'ws://a'], '--local starts a new service: leave out --ws'],
    [['node-kill'], 'add --local 3'],
    [['steady', '--max-rtt-p99', '150'], '--max-rtt-p99 is "150"'],
    [
      ['steady', '--max-cpu', 'few', '--threads', '0', '--rooms', '0'],
      '--rooms is "0"; expected: a whole number from 1 to 999999999\n--threads is "0"; expected: 1 to 64\n--max-cpu is "few"',
    ],
  ])('%o', (words, text) => {
    expect(mistake(...words)).toContain(text)
  })
})

describe('the help', () => {
  it('names every scenario, and every option of one scenario', () => {
    const all = help(SCENARIOS, undefined)
    for (const scenario of SCENARIOS) {
      expect(all).toContain(`  ${scenario.name} `)
      const own = help(SCENARIOS, scenario)
      for (const name of [...Object.keys(scenario.options), ...Object.keys(COMMON_OPTIONS)])
        expect(own).toContain(`  --${name} `)
    }
    expect(parse([])).toEqual({ kind: 'help', scenario: undefined })
    expect(parse(['steady', '--help'])).toMatchObject({ kind: 'help', scenario: { name: 'steady' } })
  })
})

describe.each(SCENARIOS.map((scenario) => [scenario.name, scenario] as const))('%s', (_, scenario) => {
  it('has options with one meaning in every scenario, and with unique names', () => {
    const taken = [...Object.keys(COMMON_OPTIONS), ...Object.keys(LIMIT_KINDS), 'help']
    expect(Object.keys(scenario.options).filter((name) => taken.includes(name))).toEqual([])
  })

  it('returns its duration and number of clients without running', async () => {
    const values = Object.fromEntries(
      Object.entries(scenario.options).map(([name, option]) => [name, option.default]),
    )
    const { seconds, clients } = await dryRun(scenario, values, scenario.runs ?? 1, ['node-1', 'node-2'])
    expect(seconds).toBeGreaterThan(5)
    expect(seconds).toBeLessThan(300)
    // The players of `bans` leave immediately.
    expect(clients).toBeGreaterThan(scenario.name === 'bans' ? -1 : 0)
  })
})

async function objected(words: string, openFiles: number | undefined = 20_000): Promise<string[]> {
  const options = run(words.split(' '))
  const plan = await dryRun(options.scenario, options.values, 1, ['node-1', 'node-2'])
  return obstacles(options, plan, openFiles)
}

describe('the checks before a run', () => {
  it('find nothing if the run can succeed', async () => {
    expect(await objected('steady --max-rtt-p99 1s --max-connect-max 1s --max-errors 0')).toEqual([])
    expect(await objected('steady --local 1 --max-cpu 80%')).toEqual([])
    expect(await objected('steady --metrics http://127.0.0.1:9100 --max-cpu 80% --max-rss 1GB')).toEqual([])
    for (const scenario of ['resume-storm', 'node-kill --local 3', 'rolling-restart --local 3'])
      expect(await objected(`${scenario} --max-resume-p99 1s --max-pause-max 2s`)).toEqual([])
  })

  it('report more clients than this process can hold, and the possible number', async () => {
    expect(await objected('big-room --spectators 19790 --players 10')).toEqual([])
    expect(await objected('big-room --spectators 19791 --players 10')).toEqual([
      '19,801 clients are too many for this process, which may open 20,000 files (ulimit -n): 19,800 at most. More take several machines, each with its part of them.',
    ])
  })

  it('report a run that is longer than the lifetime of any token', async () => {
    expect(await objected('steady --seconds 25h')).toEqual([
      'It would take 25 h, and no token is good for more than 24 h: make it shorter.',
    ])
  })

  it('report a limit on a value that the scenario never measures, or no server reports', async () => {
    expect(await objected('steady --max-resume-p99 1s --max-pause-max 2s --max-cpu 80%')).toEqual([
      '--max-resume-p99: steady does nothing that would be measured by it; leave it out.',
      '--max-pause-max: steady does nothing that would be measured by it; leave it out.',
      '--max-cpu is about what the servers report about themselves: add --metrics URL,…',
    ])
  })

  it('report the revocation of a key without control', async () => {
    expect(await objected('revoke --project prj_1 --token t')).toEqual([
      'revoke revokes a key, so it needs the control API: leave out --project and --token.',
    ])
  })
})
