import type { Fence, Wakeup, Wakeups } from '../port.ts'
import { wakeupPart } from '../rules.ts'
import { runScript } from './scripts.ts'
import type { Servers } from './servers.ts'

/**
 * `Wakeups` in Redis: for each part a sorted set of rooms by their time, `{room_wakeups:<part>}:due`, and a hash with the fence of who has said it,
 * `:fences`. Each operation is one script.
 */
export class RedisWakeups implements Wakeups {
  readonly #servers: Pick<Servers, 'run'>
  readonly #prefix: string

  constructor(servers: Pick<Servers, 'run'>, prefix: string) {
    this.#servers = servers
    this.#prefix = prefix
  }

  async set(room: string, { epoch, version }: Fence, at: number | undefined): Promise<void> {
    const keys = this.#keys(wakeupPart(room))
    const args = [room, String(epoch), String(version), at === undefined ? '' : String(at)]
    await this.#servers.run('set_wakeup', keys[0], (redis) => runScript(redis, 'set_wakeup', keys, args))
  }

  async take(part: number, { limit, againMs }: { limit: number; againMs: number }): Promise<Wakeup[]> {
    const keys = this.#keys(part)
    const reply = await this.#servers.run('take_wakeups', keys[0], (redis) =>
      runScript(redis, 'take_wakeups', keys, [String(limit), String(againMs)]),
    )
    return (reply as [room: Buffer, epoch: Buffer][]).map(([room, epoch]) => ({
      room: room.toString(),
      epoch: Number(epoch),
    }))
  }

  #keys(part: number): [due: string, fences: string] {
    const stem = `${this.#prefix}{room_wakeups:${part}}`
    return [`${stem}:due`, `${stem}:fences`]
  }
}
