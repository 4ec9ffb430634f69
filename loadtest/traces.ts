import { mkdtemp, rm } from 'node:fs/promises'
import { cpus, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { median, table } from './bench/report.ts'
import { SPANS, TraceBench, type Work } from './traces/trace-bench.ts'

/**
 * `npm run bench:traces`: what a token and a join cost with traces beside what they cost without, in CPU time of the process. Both are
 * measured in turn, round by round, so that a machine that speeds up or slows down does so for both; the median of the rounds is reported.
 */
const HELP = `npm run bench:traces -- [options]

  --rounds N   rounds (5)
  --seconds N  length of one measurement (4)`

const WORK: Readonly<Record<Work, string>> = {
  token: 'POST /tokens at control',
  join: 'handshake and join of a new room at the node',
}

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '4' },
    help: { type: 'boolean', default: false },
  },
})
const say = (line: string) => process.stdout.write(`${line}\n`)
if (values.help) {
  say(HELP)
  process.exit(0)
}
const [rounds, seconds] = [positive(values.rounds), positive(values.seconds)]

function positive(text: string): number {
  const number = Number(text)
  if (Number.isInteger(number) && number > 0) return number
  say(`"${text}" is not a positive whole number.\n\n${HELP}`)
  process.exit(2)
}

const folder = await mkdtemp(join(tmpdir(), 'roomful-traces-'))
const bench = await TraceBench.start(folder)
say(`${rounds} rounds of ${seconds} s, ${cpus().length} cores, Node ${process.version}`)
try {
  const measured = (Object.keys(WORK) as Work[]).map((work) => ({
    work,
    off: [] as number[],
    on: [] as number[],
  }))
  for (let round = 0; round <= rounds; round++) {
    process.stdout.write(`\r${round === 0 ? 'warming up' : `round ${round} of ${rounds}`}   `)
    // There and back again, so that none always comes behind the other.
    for (const { work, ...sides } of measured)
      for (const traced of round % 2 === 0 ? (['off', 'on'] as const) : (['on', 'off'] as const)) {
        const cost = await bench.measure(work, traced, seconds)
        if (round > 0) sides[traced].push(cost)
      }
  }
  const rows = measured.map(({ work, off, on }) => [
    work,
    `${WORK[work]}: ${SPANS[work]} span${SPANS[work] > 1 ? 's' : ''}`,
    median(off).toFixed(3),
    median(on).toFixed(3),
    median(on.map((cost, round) => cost / off[round]!)).toFixed(2),
  ])
  const { sent, ended } = bench.spans
  say(`\n\n${sent} of ${ended} spans were sent by now.\n`)
  say(table(['CPU ms', 'meaning', 'off', 'on', 'on/off'], rows))
} finally {
  await bench.close()
  await rm(folder, { recursive: true, force: true })
}
