import { setTimeout as sleep } from 'node:timers/promises'
import type { Durability } from '../../dataplane/rooms/definition.ts'
import type { FiguresCluster, Slot } from './cluster.ts'
import type { Fault, Stage } from './fault-run.ts'

const LEASE_MS = 2000
/** How long members are watched after the last that is done. */
const WATCH_MS = 3000

const owner = (_: FiguresCluster, slot: Slot): Slot => slot
const another = (cluster: FiguresCluster, slot: Slot): Slot => cluster.slot(slot.index + 1)
const nobody = (): undefined => undefined
const whole = async (): Promise<void> => undefined

/** No fault at all. */
export const nothing: Fault = {
  durability: 'journal',
  victim: nobody,
  watch_ms: WATCH_MS,
  strike: whole,
  repair: whole,
}

/** SIGKILL of the room's owner, or of a node that is not. A new process takes its place when the watch is over. */
export const kill = (durability: Durability, whom: 'owner' | 'another'): Fault => {
  const victim = whom === 'owner' ? owner : another
  return {
    durability,
    victim,
    watch_ms: WATCH_MS,
    async strike({ cluster, owner: at, closed }) {
      const slot = victim(cluster, at)
      closed.add(slot)
      await slot.child.kill()
    },
    repair: ({ cluster, owner: at }) => cluster.restart(victim(cluster, at)),
  }
}

/** SIGSTOP of the owner for two leases, then SIGCONT. */
export const stop: Fault = {
  durability: 'journal',
  victim: owner,
  watch_ms: 2 * LEASE_MS + WATCH_MS,
  async strike({ owner: slot, closed }) {
    closed.add(slot)
    slot.child.pause()
    await sleep(2 * LEASE_MS)
    slot.child.resume()
    closed.delete(slot)
  },
  repair: whole,
}

/** SIGTERM of the owner, and a new process in its place. */
export const drain: Fault = {
  durability: 'journal',
  victim: owner,
  watch_ms: WATCH_MS,
  async strike({ owner: slot, closed }) {
    closed.add(slot)
    slot.child.end()
    await slot.child.ended
    await sleep(LEASE_MS)
  },
  repair: ({ cluster, owner: slot }) => cluster.restart(slot),
}

/** The end of Redis, in order or by SIGKILL, and its start with all its data, at once. */
export const redis = (end: 'SIGTERM' | 'SIGKILL'): Fault => ({
  durability: 'journal',
  victim: nobody,
  watch_ms: 2 * WATCH_MS,
  async strike({ cluster }) {
    const child = cluster.redis
    if (end === 'SIGKILL') await child.kill()
    else {
      child.end()
      await child.ended
    }
    await child.start()
  },
  repair: whole,
})

/** SIGTERM of every node, one after the other, each with a new process in its place before the next is told. */
export const rolling: Fault = {
  durability: 'journal',
  victim: nobody,
  watch_ms: WATCH_MS,
  async strike({ cluster, closed }: Stage) {
    for (const slot of cluster.slots) {
      closed.add(slot)
      slot.child.end()
      await cluster.restart(slot)
      closed.delete(slot)
      await cluster.settle()
    }
  },
  repair: whole,
}
