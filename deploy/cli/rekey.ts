import { Keyring } from '../../control/keyring.ts'
import { type Resealed, resealAll } from '../../control/reseal.ts'
import { systemClock } from '../../shared/clock.ts'
import type { Config } from '../../shared/config.ts'
import type { Logger } from '../../shared/log.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'

const TELL_EVERY_MS = 5000

/** `roomful rekey`: tells of its progress in the log. Rejects when the store cannot be used, or a key opens under none of the secrets. */
export async function rekey(config: Config<'rekey'>, log: Logger): Promise<void> {
  const parts = { clock: systemClock, random: systemRandom }
  const store = await openStore({ ...config, log, ...parts })
  try {
    const keyring = new Keyring(config.keyringSecret, systemRandom)
    await keyring.check(store.records)
    let toldAt = systemClock.monotonic()
    const progress = (sofar: Resealed): void => {
      if (systemClock.monotonic() - toldAt < TELL_EVERY_MS) return
      toldAt = systemClock.monotonic()
      log.info(sofar, `sealed ${sofar.resealed} of ${sofar.records} private keys again so far`)
    }
    const done = await resealAll({ records: store.records, bus: store.bus, keyring, ...parts }, progress)
    log.info(
      done,
      `all ${done.records} private keys are sealed under the first KEYRING_SECRET; ${done.resealed} were sealed again`,
    )
  } finally {
    await store.close()
  }
}
