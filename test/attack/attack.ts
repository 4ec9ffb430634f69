import { setTimeout as sleep } from 'node:timers/promises'
import { RawClient } from '../support/raw-client.ts'
import { enter, greet, type Target, tokenFor } from './target.ts'

/** What an attack came to. */
export interface Outcome {
  /** What was done, with figures. */
  readonly did: string
  /** What must not have been possible, a sentence each; false: it was not. */
  readonly broken: readonly (string | false)[]
}

/** Something that one player, or someone without any token, may try. */
export interface Attack {
  readonly name: string
  /** What a service that stands it does not let happen. */
  readonly holds: string
  run(target: Target, seconds: number): Promise<Outcome>
}

/** Does `work` again and again for so long; resolves with how many seconds it really took. */
export async function forSeconds(seconds: number, work: (round: number) => Promise<void>): Promise<number> {
  const began = performance.now()
  for (let round = 0; performance.now() - began < seconds * 1000; round++) await work(round)
  return (performance.now() - began) / 1000
}

/** One turn of the event loop, or more while the connection is full. */
export async function breathe(client: RawClient): Promise<void> {
  do await sleep(1)
  while (!client.flowing && client.ended === undefined)
}

/** How often each of these was met. */
export class Tally<T> extends Map<T, number> {
  add(what: T): void {
    this.set(what, (this.get(what) ?? 0) + 1)
  }

  override toString(): string {
    return [...this].map(([what, times]) => `${what} × ${times}`).join(', ')
  }
}

/** Fifty clients at once, again and again for so long, each with a hello of its own, to one of `urls`; each tells how it ended. Resolves with how many seconds it took. */
export function crowds(
  seconds: number,
  urls: readonly string[],
  hello: (index: number) => object,
  onEnd: (ending: number | 'welcome' | 'no upgrade') => void,
): Promise<number> {
  const come = async (index: number): Promise<void> => {
    const client = await RawClient.open(urls[index % urls.length]!).catch(() => undefined)
    const player = client && (await greet(client, hello(index)))
    onEnd(player ? 'welcome' : (client?.ended ?? 'no upgrade'))
    client?.cut()
  }
  return forSeconds(
    seconds,
    async () => void (await Promise.all(Array.from({ length: 50 }, (_, i) => come(i)))),
  )
}

/** How long a client that asks in good faith waits: milliseconds to `welcome`; Infinity when it is not let in. */
export async function newcomer(target: Target, url: string, sub: string): Promise<number> {
  const token = await tokenFor(target, { sub })
  const began = performance.now()
  const player = await enter(target, url, token).catch(() => undefined)
  player?.client.cut()
  return player ? performance.now() - began : Number.POSITIVE_INFINITY
}
