import type { StoreRecord } from '../checker/history.ts'
import { machineNow } from '../node/clocks.ts'
import type { Trouble } from './chaos.ts'
import type { Cluster, NodeProcess } from './cluster.ts'
import { begin } from './faults.ts'

const WITHIN_MS = 30_000
const LOOK_MS = 10
/** A quarter of the lease of the cluster's nodes. */
const HOLD_MS = 250

/**
 * For one journal room with members on two nodes: its owner loses its way to the store in the middle of a commit, the other node takes
 * the room over and commits, and then the old commit arrives. Each step waits for the one before it, so every run meets the fence.
 */
export const cutOffOwner: Trouble = async (cluster, _players, done) => {
  const [owner, other] = await sidesOf(cluster)
  const healed = begin(done, { kind: 'blackhole', node: owner.process.node })
  const late = await heldCommit(owner)
  const claim = await until('the other node has the room', () =>
    calls(other.process, 'claim').find(({ began, ok }) => ok && began > late.began),
  )
  await until('the other node has committed', () =>
    calls(other.process, 'commit').find(({ began, ok }) => ok && began > claim.ended),
  )
  // While it stands still, nothing comes between what the old owner reads and what it writes.
  const awake = begin(done, { kind: 'pause', node: other.process.node })
  other.process.child.pause()
  owner.link.hold(false)
  healed()
  await until('the old commit has its answer', () =>
    calls(owner.process, 'commit').find((call) => call.began === late.began && !isOpen(call)),
  )
  other.process.child.resume()
  awake()
  return done.length
}

/**
 * Holds what the owner sends to the store from here on, and resolves with a commit that is held. What a turn sends before its commit, such as
 * when a timer is due, may be held instead: then the way is opened for that, well within the lease, and closed again.
 */
async function heldCommit(owner: Side): Promise<Call> {
  const deadline = performance.now() + WITHIN_MS
  while (performance.now() < deadline) {
    owner.link.hold(true)
    // Of one that left before, the answer alone may be held.
    const since = machineNow()
    const held = await find(HOLD_MS, () =>
      calls(owner.process, 'commit').find((call) => isOpen(call) && call.began > since),
    )
    if (held) return held
    owner.link.hold(false)
    const before = calls(owner.process, 'commit').length
    await until('the owner commits', () => calls(owner.process, 'commit').length > before || undefined)
  }
  throw new Error(`not within ${WITHIN_MS} ms: a commit is on its way`)
}

interface Side {
  readonly process: NodeProcess
  readonly link: ReturnType<Cluster['link']>
}

async function sidesOf(cluster: Cluster): Promise<[owner: Side, other: Side]> {
  const owners = await cluster.owners()
  const sides = [0, 1].map((slot) => ({ process: cluster.process(slot)!, link: cluster.link(slot) }))
  const owns = ({ process }: Side) => owners.some(({ node }) => node === process.node)
  const [owner, other] = [sides.find(owns), sides.find((side) => !owns(side))]
  if (!owner || !other) throw new Error('this needs two nodes, one of which owns the only room')
  return [owner, other]
}

/** A call, and whether it still waits for its answer. */
type Call = StoreRecord & { readonly open: boolean }

const isOpen = ({ open }: Call): boolean => open

/** What a node has asked of the store so far. */
function calls(process: NodeProcess, kind: StoreRecord['kind']): Call[] {
  // A call without an answer counts as ended when it is read.
  const now = machineNow()
  return process
    .history()
    .calls.filter((call) => call.kind === kind)
    .map((call) => ({ ...call, open: call.ended >= now }))
}

async function until<T>(what: string, look: () => T | undefined): Promise<T> {
  const found = await find(WITHIN_MS, look)
  if (found === undefined) throw new Error(`not within ${WITHIN_MS} ms: ${what}`)
  return found
}

async function find<T>(withinMs: number, look: () => T | undefined): Promise<T | undefined> {
  const deadline = performance.now() + withinMs
  for (;;) {
    const found = look()
    if (found !== undefined || performance.now() > deadline) return found
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS))
  }
}
