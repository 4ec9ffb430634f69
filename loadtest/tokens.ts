import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { cpus, tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { parseArgs } from 'node:util'
import { table } from './bench/report.ts'
import { canPin } from './bench/server-under-test.ts'
import { summarizeRounds, type Way, type Window } from './tokens/outcome.ts'
import { TokenBench } from './tokens/token-bench.ts'

/**
 * `npm run bench:tokens`: how many tokens control issues, how long a caller waits for one, and what one costs control in CPU time, beside
 * a bare route of Hono that signs the same claims. All are measured in turn, round by round, so that a machine that speeds up or slows
 * down does so for all of them; a ratio is that of one round, and the median of the rounds is reported.
 */
const HELP = `npm run bench:tokens -- [options]

  --controls N     control processes; more than one: behind haproxy (1)
  --connections N  callers, each with one request at a time on a connection of its own (16)
  --rounds N       rounds (5)
  --seconds N      length of one measurement (4)
  --json FILE      where the figures go (coverage/bench-tokens.json)`

const WAYS: readonly Way[] = ['bare', 'project', 'key']
const MEANING: Readonly<Record<Way, string>> = {
  bare: 'Hono and a signature, nothing else',
  project: 'by an operator, with the project’s pair',
  key: 'by a key, with its own pair',
}

const { values } = parseArgs({
  options: {
    controls: { type: 'string', default: '1' },
    connections: { type: 'string', default: '16' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    json: { type: 'string', default: 'coverage/bench-tokens.json' },
    help: { type: 'boolean', default: false },
  },
})
const say = (line: string) => process.stdout.write(`${line}\n`)
if (values.help) {
  say(HELP)
  process.exit(0)
}
const [controls, connections, rounds, seconds] = [
  values.controls,
  values.connections,
  values.rounds,
  values.seconds,
].map(positive) as [number, number, number, number]

function positive(text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  say(`"${text}" is not a positive whole number.\n\n${HELP}`)
  process.exit(2)
}

const folder = await mkdtemp(join(tmpdir(), 'roomful-tokens-'))
const bench = await TokenBench.start({ folder, controls, connections })
say(
  `${controls} control process${controls > 1 ? 'es behind haproxy' : ''}, ${connections} callers, ${rounds} rounds of ${seconds} s, ${cpus().length} cores, Node ${process.version}${canPin() ? ', servers on core 0' : ''}`,
)
try {
  const measured: (Window & { way: Way })[] = []
  for (let round = 0; round <= rounds; round++) {
    process.stdout.write(`\r${round === 0 ? 'warming up' : `round ${round} of ${rounds}`}   `)
    // There and back again, so that none always comes behind the same one.
    for (const way of round % 2 === 0 ? WAYS : WAYS.toReversed()) {
      const window = await bench.measure(way, seconds)
      if (round > 0) measured.push({ way, ...window })
    }
  }
  const results = WAYS.map((way) => summarizeRounds(way, measured))
  say('\n')
  say(
    table(
      ['tokens', 'meaning', 'per second', 'p50 ms', 'p95 ms', 'p99 ms', 'CPU ms', 'of bare', 'callers busy'],
      results.map((result) => [
        result.way,
        MEANING[result.way],
        result.tokens_per_second.toFixed(0),
        result.p50_ms.toFixed(2),
        result.p95_ms.toFixed(2),
        result.p99_ms.toFixed(2),
        result.cpu_ms_per_token.toFixed(3),
        result.ratio_to_bare.toFixed(2),
        `${(result.callers_busy * 100).toFixed(0)} %`,
      ]),
    ),
  )
  await mkdir(dirname(values.json), { recursive: true })
  const setting = { controls, connections, rounds, seconds, node: process.version, cores: cpus().length }
  await writeFile(values.json, `${JSON.stringify({ ...setting, results }, undefined, 2)}\n`)
  say(`\nCPU: of the server processes, user and system, for one token. Written to ${values.json}.`)
  if (results.some(({ callers_busy }) => callers_busy > 0.9))
    say('The callers themselves were busy for more than 90 % of the time: the servers can do more than this.')
} finally {
  await bench.close()
  await rm(folder, { recursive: true, force: true })
}
