import { ATTACKS, type Outcome } from './attacks.ts'
import type { Order } from './siege.ts'

/** A process: makes one attack after the other, as its parent says, and tells what each came to. Ends with its parent. */
process.on('message', ({ name, seconds, target }: Order) => {
  const attack = ATTACKS.find((known) => known.name === name)
  if (!attack) throw new Error(`there is no attack ${name}`)
  attack
    .run(target, seconds)
    .catch((error: unknown): Outcome => ({ did: 'it broke off', broken: [String(error)] }))
    .then((outcome) => process.send?.(outcome))
})
process.once('disconnect', () => process.exit(0))
