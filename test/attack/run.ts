import { parseArgs } from 'node:util'
import { ATTACKS, type Attack } from './attacks.ts'
import type { Experience } from './bystanders.ts'
import { Siege } from './siege.ts'

const HELP = `npm run attack -- [options]

Starts a service of two nodes on this machine, has honest players play in it, and attacks it, from another process, in one way after the
other. Tells for each what was tried, what was possible that must not be (BROKEN), and what the players met: round trips in milliseconds,
and where their p99 was more than doubled (SLOW).

  --seconds N     how long each attack goes on (10)
  --only NAMES    some of them, separated by commas: ${ATTACKS.map(({ name }) => name).join(', ')}

Ends with 1 when anything was broken or slow.
`
/** Round trips below this are short, whatever they were in quiet: two cores also carry the attacker. */
const SHORT_MS = 10

const { values } = parseArgs({
  options: {
    seconds: { type: 'string', default: '10' },
    only: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})

function wrong(message: string): never {
  process.stderr.write(`${message}\n\n${HELP}`)
  process.exit(2)
}

function chosen(): readonly Attack[] {
  if (values.only === undefined) return ATTACKS
  return values.only
    .split(',')
    .map(
      (name) =>
        ATTACKS.find((attack) => attack.name === name) ?? wrong(`--only names ${name}, which is no attack`),
    )
}

function slowed(quiet: Experience, during: Experience): readonly string[] {
  const most = Math.max(SHORT_MS, 2 * quiet.pingP99)
  return during.pingP99 > most
    ? [
        `SLOW: the players' round trip p99 went from ${quiet.pingP99.toFixed(1)} to ${during.pingP99.toFixed(1)} ms`,
      ]
    : []
}

function roundTrips({ pingP50, pingP99, ackP99 }: Experience): string {
  const ms = (value: number): string => `${value.toFixed(1)} ms`
  return `ping p50 ${ms(pingP50)}, p99 ${ms(pingP99)}; move to ack p99 ${ms(ackP99)}`
}

async function main(): Promise<number> {
  const seconds = Number(values.seconds)
  if (!(seconds >= 1)) wrong(`--seconds is ${values.seconds}; it must be a number from 1 on`)
  const attacks = chosen()
  const say = (line: string): void => void process.stdout.write(`${line}\n`)
  const siege = await Siege.begin()
  let failed = 0
  try {
    const quiet = await siege.quiet(seconds)
    say(`in quiet: ${roundTrips(quiet)}`)
    for (const [index, attack] of attacks.entries()) {
      say(`\n${index + 1}/${attacks.length} ${attack.name}: ${attack.holds}`)
      const { did, broken, during } = await siege.assault(attack, seconds)
      say(`  ${did}`)
      say(`  ${roundTrips(during)}`)
      const problems = [...broken.map((problem) => `BROKEN: ${problem}`), ...slowed(quiet, during)]
      for (const problem of problems) say(`  ${problem}`)
      if (problems.length > 0) failed += 1
    }
  } finally {
    await siege.end()
  }
  say(`\n${attacks.length - failed} of ${attacks.length} attacks were stood`)
  return failed > 0 ? 1 : 0
}

if (values.help) process.stdout.write(HELP)
else process.exit(await main())
