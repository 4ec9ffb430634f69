import { ATTACKS, type Outcome } from './attacks.ts'
import type { Target } from './target.ts'

/** A process: makes one attack, tells its parent what it came to, and ends. Its words are the attack's name and for how many seconds. */
const [name, seconds] = process.argv.slice(2)
process.once('message', (target: Target) => {
  const attack = ATTACKS.find((known) => known.name === name)
  if (!attack) throw new Error(`there is no attack ${name}`)
  attack
    .run(target, Number(seconds))
    .catch((error: unknown): Outcome => ({ did: 'it broke off', broken: [String(error)] }))
    .then((outcome) => process.send?.(outcome, () => process.exit(0)))
})
