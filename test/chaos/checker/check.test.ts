import { describe, expect, it } from 'vitest'
import { check } from './check.ts'
import { type Durability, type FaultKind, VIOLATIONS, type ViolationName } from './history.ts'
import {
  commits,
  forget,
  forgetful,
  join,
  journal,
  LOBBY_ROOM,
  ops,
  PLANTED,
  patches,
  play,
  records,
  remove,
  search,
} from './planted.ts'
import { type OpenHistory, Scenario } from './scenario.ts'

/** A snapshot room that another node claims while its owner lives. The changes of that owner after the claim are lost. `idle_ms`: time without changes before them. */
function overtaken({
  fault = 'cut',
  idle_ms: idleMs = 0,
}: {
  fault?: FaultKind
  idle_ms?: number
} = {}): OpenHistory {
  const scenario = new Scenario('snapshot')
  play(scenario)
  scenario.save()
  ops(scenario)
  scenario.fault(fault)
  scenario.overtake('node_b', () => {
    scenario.wait(idleMs)
    ops(scenario)
  })
  ops(scenario)
  return scenario.end()
}

/** Replaces Ann's frames by views: her client library does not expose frames or epochs. */
function withoutFrames(history: OpenHistory): OpenHistory {
  history.clients = history.clients.map((record) =>
    record.kind === 'frame' && record.client === 'ann'
      ? { ...record, kind: 'view', view: record.view! }
      : record,
  )
  return history
}

/**
 * A journal room that the store loses, and that another node claims. `owner_fault`: the owner was killed. `reclaimed`: the owner had claimed the
 * room again before.
 */
function emptied({
  owner_fault: ownerFault,
  reclaimed = false,
}: {
  owner_fault: boolean
  reclaimed?: boolean
}): OpenHistory {
  const scenario = new Scenario('journal')
  join(scenario)
  const begun = scenario.memory()
  ops(scenario)
  if (ownerFault) scenario.fault('kill')
  scenario.wipe()
  if (reclaimed) scenario.reclaim()
  scenario.rewrite('node_b', begun)
  return scenario.end()
}

/**
 * A room that its owner writes again 3 s after the store lost it. The owner was away for `away_ms`, and a member is notified after `told_ms` that
 * it has no seat.
 */
function rewritten(
  { away_ms: awayMs, told_ms: toldMs }: { away_ms: number; told_ms: number },
  durability: 'journal' | 'none' = 'journal',
): OpenHistory {
  const scenario = new Scenario(durability)
  scenario.join('eve')
  join(scenario)
  ops(scenario)
  if (awayMs > 0) scenario.fault('blackhole', { ms: awayMs })
  scenario.wipe()
  scenario.wait(toldMs)
  scenario.loseSeat('eve')
  scenario.wait(3000 - toldMs)
  // A `none` room has no record: the owner only announces that it has the room.
  if (durability === 'journal') scenario.rewrite()
  ops(scenario)
  return scenario.end()
}

/** The resume of Ann, a member of a room, is refused after something has happened. */
function refused(happens: (scenario: Scenario) => void, { superseded = false } = {}): OpenHistory {
  const scenario = new Scenario('journal')
  play(scenario)
  happens(scenario)
  scenario.refuse('ann', { superseded })
  return scenario.end()
}

/**
 * A snapshot room that node_b claims from a live node, with a loss of unsaved changes. Then node_b dies, the store loses all data (or none), and
 * the first owner continues from its memory. `remembers` returns the refs of Ann's ops in that memory.
 */
function revived({
  remembers = (refs) => refs,
  late = () => [],
  store_lost: storeLost = true,
}: {
  remembers?: (applied: readonly number[]) => readonly number[]
  /** Returns refs of ops that the earlier owner had received and applies now. */
  late?: (applied: readonly number[]) => readonly number[]
  store_lost?: boolean
} = {}): OpenHistory {
  const scenario = new Scenario('snapshot')
  play(scenario)
  scenario.save()
  ops(scenario)
  const memory = scenario.memory()
  const applied = scenario.clients.flatMap((record) =>
    record.kind === 'ack' && record.client === 'ann' ? [record.ref] : [],
  )
  const player = scenario.playerAfter(remembers(applied).map((ref) => `mem_ann/${ref}`))
  memory.state.players.mem_ann = { ...player }
  scenario.fault('blackhole')
  scenario.claim('node_b')
  ops(scenario)
  scenario.fault('kill')
  if (storeLost) {
    scenario.wipe()
    scenario.rewrite('node_a', memory)
  } else scenario.claim('node_a', memory)
  for (const ref of late(applied)) scenario.lateOp('ann', ref)
  ops(scenario)
  return scenario.end()
}

const names = (history: OpenHistory): ViolationName[] => [
  ...new Set(check(history as never).violations.map(({ name }) => name)),
]

describe('check finds no violation in', () => {
  it.each([
    ['a journal room through crash, hand-over and resume', journal],
    ['a snapshot room that a crash took back to its last save', () => forgetful({ crash: 'kill' })],
    ['a snapshot room whose replaced owner continued for a while', overtaken],
    ['the same room with a client library that exposes no epochs', () => withoutFrames(overtaken())],
    ['a room that an earlier owner writes again from its memory after a data loss', revived],
    [
      'such a room if the earlier owner had also received an op that the last one applied',
      () => revived({ remembers: (applied) => [...applied, applied.at(-1)! + 2] }),
    ],
    [
      'such a room if the earlier owner applies ops that it had received before',
      () => revived({ remembers: (applied) => applied.slice(0, -1), late: (applied) => applied.slice(-1) }),
    ],
    [
      'a room without durability',
      () => {
        const scenario = new Scenario('none')
        play(scenario)
        return scenario.end()
      },
    ],
    [
      'a write without an answer that took effect, and one that did not',
      () => {
        const history = journal()
        commits(history)[3]!.ok = undefined
        history.store.push({ ...commits(history)[7]!, ok: undefined })
        return history
      },
    ],
    [
      'a gap that a resync heals',
      () => {
        const history = journal()
        const [missed, shown, whole] = patches(history)
        remove(history, missed)
        delete (shown as { actual?: number }).actual
        delete (shown as { view?: unknown }).view
        whole!.t = 'state.resync'
        return history
      },
    ],
  ])('%s', (_, make) => {
    expect(check(make() as never).violations).toEqual([])
  })
})

describe('check finds a planted violation under its name', () => {
  it.each(Object.entries(PLANTED) as [ViolationName, (history: OpenHistory) => void][])(
    '%s',
    (name, plant) => {
      const history = journal()
      plant(history)
      expect(names(history)).toContain(name)
    },
  )

  it('for every name', () => {
    expect(Object.keys(PLANTED).sort()).toEqual(Object.keys(VIOLATIONS).sort())
  })

  it.each(['none', 'of another node', 'over'] as const)(
    'rollback of a snapshot room that no crash explains (crash: %s)',
    (crash) => {
      expect(names(forgetful({ crash: 'kill' }))).toEqual([])
      expect(names(forgetful({ crash }))).toContain('rollback')
    },
  )

  it.each([
    ['expects', '500 ms', ['rollback_too_far']],
    ['does not expect', '2000 ms', []],
  ])(
    '%s a snapshot room to be saved while each message of its owner is delayed by %s',
    (_, amount, found) => {
      const history = forgetful({ crash: 'kill', unsaved_ms: 3500 })
      const { node, at } = history.faults.at(-1)!
      history.faults.push({ kind: 'delay', node: node!, amount, at: at - 4500, until: at - 1000 })
      expect(names(history)).toEqual(found)
    },
  )

  it('rollback of a journal room whose owner could have written it again after a data loss', () => {
    expect(names(emptied({ owner_fault: true }))).toEqual([])
    expect(names(emptied({ owner_fault: false }))).toContain('rollback')
  })

  it('rollback of a journal room whose owner had started to write it again', () => {
    expect(names(emptied({ owner_fault: true, reclaimed: true }))).toEqual([])
    expect(names(emptied({ owner_fault: false, reclaimed: true }))).toContain('rollback')
  })
})

describe('A list of rooms', () => {
  const lobby = (change: (history: OpenHistory) => void): ViolationName[] => {
    const history = journal()
    change(history)
    return names(history)
  }
  const wipe = (history: OpenHistory, before: number) => {
    const at = history.end.at - before
    history.faults.push({ kind: 'redis_lost', at, until: at + 1 })
  }
  const ended = (history: OpenHistory, before: number) => {
    const claim = history.store.find(({ room }) => room === LOBBY_ROOM)!
    const at = history.end.at - before
    history.store.push({ ...claim, kind: 'release', began: at, ended: at, forget: true })
  }

  it.each([
    ['has ended', (before: number) => (history: OpenHistory) => ended(history, before)],
    [
      'has an owner that has drained',
      (before: number) => (history: OpenHistory) => {
        const at = history.end.at - before
        history.faults.push({ kind: 'drain', node: 'node_c', at: at - 2000, until: at })
      },
    ],
  ])('may have a room that %s for a lease and 2 s, and not longer', (_, happens) => {
    expect(lobby(happens(2900))).not.toContain('listed_ghost')
    expect(lobby(happens(3100))).toContain('listed_ghost')
  })

  it('may have such a room longer while the node of the list does not reach the store', () => {
    const cut = (node: string) => (history: OpenHistory) => {
      ended(history, 3100)
      history.faults.push({ kind: 'delay', node, at: history.end.at - 3500, until: history.end.at - 2000 })
    }
    expect(lobby(cut('node_a'))).not.toContain('listed_ghost')
    expect(lobby(cut('node_b'))).toContain('listed_ghost')
  })

  it('may have such a room longer if an outage of the node of the list comes later', () => {
    const cut = (node: string) => (history: OpenHistory) => {
      ended(history, 3100)
      history.faults.push({ kind: 'delay', node, at: history.end.at - 1500, until: history.end.at - 1000 })
    }
    expect(lobby(cut('node_a'))).not.toContain('listed_ghost')
    expect(lobby(cut('node_b'))).toContain('listed_ghost')
  })

  it('may have a room of a draining node whose successor was killed, or missed the hand-over', () => {
    const handedOver =
      (faultAfter: number, forget = false, kind: FaultKind = 'kill', amount?: string) =>
      (history: OpenHistory) => {
        const at = history.end.at - 6000
        ended(history, 6000)
        Object.assign(history.store.at(-1)!, { forget })
        history.faults.push(
          { kind: 'drain', node: 'node_c', at: at - 500, until: history.end.at - 1000 },
          { kind, node: 'node_b', at: at + faultAfter, until: at + faultAfter, ...(amount && { amount }) },
        )
      }
    expect(lobby(handedOver(1000))).not.toContain('listed_ghost')
    expect(lobby(handedOver(1100))).toContain('listed_ghost')
    expect(lobby(handedOver(-100))).toContain('listed_ghost')
    expect(lobby(handedOver(1000, true))).toContain('listed_ghost')
    expect(lobby(handedOver(-1000, false, 'redis_kept'))).not.toContain('listed_ghost')
    expect(lobby(handedOver(-1100, false, 'redis_kept'))).toContain('listed_ghost')
    expect(lobby(handedOver(-2000, false, 'delay', '1000 ms'))).not.toContain('listed_ghost')
    expect(lobby(handedOver(-1000, false, 'delay', '999 ms'))).toContain('listed_ghost')
  })

  it('may have a room that was claimed again', () => {
    const again = (history: OpenHistory) => {
      ended(history, 9000)
      const claim = history.store.find(({ room }) => room === LOBBY_ROOM)!
      history.store.push({ ...claim, epoch: 2, began: history.end.at - 8000, ended: history.end.at - 8000 })
    }
    expect(lobby(again)).not.toContain('listed_ghost')
  })

  it('has only running rooms at the end, and each player has a room', () => {
    const without = (history: OpenHistory) => {
      history.lobby!.end.rooms = []
    }
    expect(lobby(without)).toContain('list_wrong')
    const roomless = (history: OpenHistory) => {
      history.lobby!.end.roomless = ['eve']
    }
    expect(lobby(roomless)).toContain('left_out')
  })

  it('leaks no hidden state to a player', () => {
    expect(lobby((history) => search(history, { kind: 'marks', marks: ['§lobby#3()§'] }))).toContain(
      'layer_leaked',
    )
  })

  it('may lead to a room that has the code or the seat of another after a data loss', () => {
    const code = { kind: 'found', by: 'code', room: 'chaos-lobby:two', code: 'K7QX2M' }
    const seat = { kind: 'not_found', by: 'reservation', error: 'room_full' }
    for (const what of [code, seat]) {
      const lost = (before: number) =>
        lobby((history) => {
          wipe(history, before)
          search(history, what)
        })
      const name = what === code ? 'code_misleads' : 'reservation_broken'
      expect(lost(5500)).not.toContain(name)
      expect(lost(6500)).toContain(name)
    }
  })

  it('leads to rooms that keep their reserved seats', () => {
    const history = new Scenario('journal').end()
    const [owner] = history.end.owners
    history.end.owners[0] = { ...owner!, state: { ...(owner!.state as object), reserved: { 'ann/3': true } } }
    expect(check(history).violations.map(({ name }) => name)).toContain('reservation_broken')
  })

  it('may lead to a refusal if the reservation is used, or the room has ended', () => {
    const seat = { kind: 'not_found', by: 'reservation', error: 'room_full' }
    const used = (history: OpenHistory) => {
      search(history, { at: history.end.at - 5500, kind: 'found', by: 'joinOrCreate', room: LOBBY_ROOM })
      search(history, seat)
    }
    const gone = (history: OpenHistory) => {
      ended(history, 5500)
      search(history, seat)
    }
    expect(lobby(used)).not.toContain('reservation_broken')
    expect(lobby(gone)).not.toContain('reservation_broken')
  })
})

it('The secrets of a member without a known client may reach one client', () => {
  const got = (...clients: string[]) => {
    const history = journal()
    const { at } = history.clients.at(-1)!
    const marks = ['§mem_new#1(mem_new)§']
    for (const client of clients) history.clients.push({ at, client, kind: 'marks', marks })
    return names(history)
  }
  expect(got('ann', 'ann')).toEqual([])
  expect(got('ann', 'bob')).toEqual(['layer_leaked'])
})

describe('A member may lose its seat', () => {
  it('if the store has been back for a lease after a data loss, and the owner of the room is away', () => {
    expect(names(rewritten({ away_ms: 2900, told_ms: 1500 }))).toEqual([])
    expect(names(rewritten({ away_ms: 2900, told_ms: 1500 }, 'none'))).toEqual([])
  })

  it.each([
    ['if the owner was not away', { away_ms: 0, told_ms: 1500 }],
    ['if the owner was away for less than a lease', { away_ms: 900, told_ms: 1500 }],
    ['before a lease is over', { away_ms: 2900, told_ms: 900 }],
  ])('but not %s', (_, lost) => {
    expect(names(rewritten(lost))).toEqual(['seat_lost'])
    expect(names(rewritten(lost, 'none'))).toEqual(['seat_lost'])
  })
})

describe('A member of a room that the store loses during its hand-over', () => {
  /** Ann is notified `ms` after the loss. Then the room is written again. */
  const told = (ms: number): ViolationName[] => {
    const scenario = new Scenario('journal')
    scenario.join('ann')
    scenario.fault('drain')
    scenario.release()
    scenario.wipe()
    scenario.wait(ms)
    scenario.loseSeat('ann')
    scenario.wait(4000)
    scenario.rewrite('node_b', new Scenario('journal').memory())
    return names(scenario.end()).filter((name) => name === 'seat_lost')
  }

  it('may lose its seat before the room has another owner, when a lease is over', () => {
    expect(told(1500)).toEqual([])
    expect(told(900)).toEqual(['seat_lost'])
  })
})

describe('A member that joined at an owner which did not know that it was replaced', () => {
  /** Eve joins after the claim of the next owner: at the earlier owner, or (`at_next`) at the next. */
  const latecomer = ({ at_next: atNext = false }: { at_next?: boolean } = {}): OpenHistory => {
    const scenario = new Scenario('snapshot')
    play(scenario)
    scenario.save()
    scenario.fault('cut')
    const comeAndLose = () => {
      scenario.join('eve')
      scenario.loseSeat('eve')
    }
    scenario.overtake('node_b', atNext ? () => {} : comeAndLose)
    if (atNext) comeAndLose()
    ops(scenario)
    return scenario.end()
  }

  it('may have no seat at the next owner, but a member that joined there keeps its seat', () => {
    expect(names(latecomer())).toEqual([])
    expect(names(latecomer({ at_next: true }))).toContain('seat_lost')
  })
})

describe('A member of a room that ended with its owner', () => {
  /** Ann is notified `after_ms` after another node has claimed the room, on her connection or (`back`) on the next one. */
  const told = ({ after_ms: afterMs, back }: { after_ms: number; back?: { waits_ms: number } }) => {
    const scenario = new Scenario('none')
    scenario.join('ann')
    scenario.fault('kill')
    scenario.claim('node_b')
    scenario.wait(afterMs)
    if (back) scenario.resume('ann', back.waits_ms)
    scenario.loseSeat('ann')
    return names(scenario.end()).filter((name) => name === 'seat_lost')
  }

  it('is notified within 3 s, or when its client returns', () => {
    expect(told({ after_ms: 2000 })).toEqual([])
    expect(told({ after_ms: 9000 })).toEqual(['seat_lost'])
    expect(told({ after_ms: 9000, back: { waits_ms: 0 } })).toEqual([])
    expect(told({ after_ms: 0, back: { waits_ms: 4000 } })).toEqual([])
  })

  it('learns this up to 15 s later if the store loses its data after it', () => {
    const told = (afterMs: number) => {
      const scenario = new Scenario('none')
      scenario.join('ann')
      scenario.fault('kill')
      scenario.claim('node_b')
      scenario.wait(2000)
      scenario.wipe()
      scenario.wait(afterMs)
      scenario.loseSeat('ann')
      return names(scenario.end()).filter((name) => name === 'seat_lost')
    }
    expect(told(17_000)).toEqual([])
    expect(told(20_000)).toEqual(['seat_lost'])
  })

  it('loses its seat in a drain if no other node takes rooms, and only then', () => {
    const drained = (durability: Durability, forget: boolean, other?: FaultKind, earlierMs = 0) => {
      const scenario = new Scenario(durability)
      scenario.claim('node_b')
      scenario.join('ann')
      if (other) scenario.fault(other, { node: 'node_a', ms: earlierMs + 5 })
      scenario.wait(earlierMs)
      scenario.fault('drain')
      scenario.release({ forget })
      scenario.claim('node_a.2')
      scenario.loseSeat('ann')
      return names(scenario.end()).filter((name) => name === 'seat_lost')
    }
    expect(drained('none', true, 'drain')).toEqual([])
    expect(drained('none', true, 'kill')).toEqual([])
    for (const silent of ['pause', 'blackhole'] as const) {
      expect(drained('none', true, silent, 1000)).toEqual([])
      expect(drained('none', true, silent, 900)).toEqual(['seat_lost'])
    }
    for (const lost of [
      drained('none', true),
      drained('none', false, 'drain'),
      drained('snapshot', true, 'drain'),
    ])
      expect(lost).toEqual(['seat_lost'])
  })

  it('may be notified later while its node stands still', () => {
    const told = (pausedMs: number) => {
      const scenario = new Scenario('none')
      scenario.join('ann')
      scenario.fault('kill')
      scenario.claim('node_b')
      scenario.resume('ann')
      scenario.wait(1500)
      if (pausedMs > 0) scenario.fault('pause', { ms: pausedMs })
      scenario.wait(3000)
      scenario.loseSeat('ann')
      return names(scenario.end()).filter((name) => name === 'seat_lost')
    }
    expect(told(2000)).toEqual([])
    expect(told(1000)).toEqual(['seat_lost'])
  })
})

describe('A room that an earlier owner continues', () => {
  /** Node B takes the room over while node A is late, and may end it. Then the store loses its data, and node A writes the room again. */
  const continued = (durability: Durability, ends = true) => {
    const scenario = new Scenario(durability)
    scenario.wipe()
    scenario.rewrite()
    const memory = scenario.memory()
    scenario.fault('delay')
    scenario.claim('node_b')
    if (ends) scenario.release({ forget: true })
    scenario.wipe()
    scenario.rewrite('node_a', memory)
    return names(scenario.end())
  }

  it('is right if the room is kept nowhere and the last owner has ended it', () => {
    expect(continued('none')).not.toContain('room_lost')
    expect(continued('none', false)).toContain('room_lost')
    expect(continued('journal')).toContain('room_lost')
  })
})

describe('The resume of a client may be refused', () => {
  it('if it has no seat', () => {
    const seatless = (scenario: Scenario) => {
      scenario.fault('blackhole', { ms: 2000 })
      scenario.wipe()
      scenario.wait(1500)
      scenario.loseSeat('ann')
      scenario.rewrite()
    }
    expect(names(refused(seatless))).toEqual([])
  })

  it('if its seat has ended with the owner of its room, before it was notified', () => {
    const ended = (crash: 'kill' | 'none') => {
      const scenario = new Scenario('none')
      scenario.join('ann')
      if (crash === 'kill') scenario.fault('kill')
      scenario.loseSeat('ann')
      scenario.claim('node_b')
      scenario.refuse('ann')
      const history = scenario.end()
      remove(history, records(history, 'lost')[0])
      return names(history).filter((name) => name !== 'too_little')
    }
    expect(ended('kill')).toEqual([])
    expect(ended('none')).toContain('closed_without_cause')
  })

  it('on the connection that lost a race, if the other one has resumed the session since', () => {
    const again = (scenario: Scenario) => {
      scenario.race('ann')
      scenario.resume('ann')
    }
    expect(names(refused(again, { superseded: true }))).toEqual([])
    expect(names(refused(again))).toEqual(['closed_without_cause'])
    const once = (scenario: Scenario) => scenario.race('ann')
    expect(names(refused(once, { superseded: true }))).toEqual(['closed_without_cause'])
  })

  it('if the store lost the session, and only a node that did not know the last resume wrote it again', () => {
    const rewrittenAt = (turn: number) => (scenario: Scenario) => {
      scenario.session('ann', 0)
      scenario.session('ann', 1)
      scenario.wipe()
      scenario.rewrite()
      scenario.session('ann', turn)
    }
    expect(names(refused(rewrittenAt(0)))).toEqual([])
    expect(names(refused(rewrittenAt(1)))).toEqual(['closed_without_cause'])
  })

  it('if the store lost the session, and a node wrote it again only after the request', () => {
    const writtenAgain = (when: 'before' | 'while') => (scenario: Scenario) => {
      scenario.session('ann', 0)
      scenario.wipe()
      scenario.rewrite()
      if (when === 'before') scenario.session('ann', 0)
      scenario.ask('ann')
      if (when === 'while') scenario.session('ann', 0)
    }
    expect(names(refused(writtenAgain('while')))).toEqual([])
    expect(names(refused(writtenAgain('before')))).toEqual(['closed_without_cause'])
  })

  it('but not without a fault', () => {
    expect(names(refused(() => {}))).toEqual(['closed_without_cause'])
  })
})

describe('A claim without an answer', () => {
  /** The claim may have taken a snapshot room from an owner that was away for a moment. Much later, another node claims the room. */
  const lost = (fault: boolean) => {
    const scenario = new Scenario('snapshot')
    play(scenario)
    scenario.save()
    ops(scenario)
    if (fault) scenario.fault('redis_pause', { ms: 500 })
    scenario.claimWithoutAnswer('node_c')
    scenario.wait(8000)
    scenario.claim('node_b')
    ops(scenario)
    return names(scenario.end())
  }

  it('explains a loss if the owner was away at that time', () => {
    expect(lost(true)).toEqual([])
    expect(lost(false)).toContain('rollback')
  })
})

describe('A takeover from a live owner', () => {
  it('does not explain that the new owner lost an op that it had applied', () => {
    const history = overtaken()
    forget(history)
    expect(names(history)).toEqual(['acked_lost'])
  })

  it.each([
    ['long after it', { idle_ms: 5000 }],
    ['after the death of that owner', { fault: 'kill' }],
  ] as const)('does not explain the loss of ops %s', (_, how) => {
    expect(names(withoutFrames(overtaken(how)))).toContain('acked_lost')
  })
})

describe('The memory of an earlier owner', () => {
  it('does not explain a rollback while the store has the save of the last owner', () => {
    expect(names(revived({ store_lost: false }))).toContain('rollback')
  })

  it('does not explain that an op returns a second time', () => {
    const late = (applied: readonly number[]) => [...applied.slice(-1), ...applied.slice(-1)]
    expect(names(revived({ remembers: (applied) => applied.slice(0, -1), late }))).toContain('applied_twice')
  })

  it.each<[string, (applied: readonly number[]) => number[]]>([
    ['an op that it applied twice', (applied) => [...applied, applied.at(-1)!]],
    [
      'ops that it applied in another order',
      (applied) => [...applied.slice(0, -2), applied.at(-1)!, applied.at(-2)!],
    ],
    ['an op that it refused', (applied) => [...applied, applied.at(-1)! + 1]],
    ['an op that was never sent', (applied) => [...applied, 4711]],
  ])('does not explain %s', (_, remembers) => {
    expect(names(revived({ remembers }))).toContain('unexplained')
  })
})

describe('The excused share of a history', () => {
  it('has only the pairs between the last frame of one owner and the first of the next', () => {
    const { pairs, excused, by } = check(forgetful({ crash: 'kill' }) as never).excused
    expect(by).toMatchObject({ take_over: 2, room_ended: 0, store_lost: 0, session_lost: 0, race: 0 })
    expect(excused / pairs).toBeLessThan(0.05)
  })
})
