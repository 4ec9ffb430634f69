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

/** A snapshot room whose owner lives, and is taken for dead: it goes on for a while, which is lost. `idle_ms`: it did nothing for so long. */
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

/** Ann's client library tells no frames, and so no epochs. */
function withoutFrames(history: OpenHistory): OpenHistory {
  history.clients = history.clients.map((record) =>
    record.kind === 'frame' && record.client === 'ann'
      ? { ...record, kind: 'view', view: record.view! }
      : record,
  )
  return history
}

/**
 * A journal room of which the store loses everything, when its owner has a fault of its own or has none; `reclaimed`: it had begun to
 * write it again when another owner came.
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
 * A room that its owner writes again 3 s after the store lost it. The owner was away for `away_ms`, and a member is told after
 * `told_ms` that it has no seat.
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
  // Of a room that is kept nowhere the owner says only that it has it.
  if (durability === 'journal') scenario.rewrite()
  ops(scenario)
  return scenario.end()
}

/** Ann, who is in a room, is refused what she resumes after something has happened. */
function refused(happens: (scenario: Scenario) => void, { superseded = false } = {}): OpenHistory {
  const scenario = new Scenario('journal')
  play(scenario)
  happens(scenario)
  scenario.refuse('ann', { superseded })
  return scenario.end()
}

/**
 * A snapshot room that node_b took over from a node that lives, with a loss of what was not saved. Then node_b dies, the store loses
 * everything (or nothing), and the first owner goes on from what it remembers of ann's ops: `remembers` gives their refs.
 */
function revived({
  remembers = (refs) => refs,
  late = () => [],
  store_lost: storeLost = true,
}: {
  remembers?: (applied: readonly number[]) => readonly number[]
  /** Ops that the earlier owner had received and applies now. */
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

describe('a history that keeps every promise passes', () => {
  it.each([
    ['a journal room through crash, hand-over and resume', journal],
    ['a snapshot room that a crash took back to its last save', () => forgetful({ crash: 'kill' })],
    ['one whose owner lived and went on for a while', overtaken],
    ['the same as a client library shows it that tells no epochs', () => withoutFrames(overtaken())],
    ['a room that an emptied store has from the owner before its last, who never saw it go back', revived],
    [
      'and one whose earlier owner was also sent what the last one applied',
      () => revived({ remembers: (applied) => [...applied, applied.at(-1)! + 2] }),
    ],
    [
      'and one whose earlier owner applies ops that it had received before it was taken over',
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
      'a write without an answer that stands, and one that does not',
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

describe('one planted violation of each kind is caught under its own name', () => {
  it.each(Object.entries(PLANTED) as [ViolationName, (history: OpenHistory) => void][])(
    '%s',
    (name, plant) => {
      const history = journal()
      plant(history)
      expect(names(history)).toContain(name)
    },
  )

  it('has a case for every name', () => {
    expect(Object.keys(PLANTED).sort()).toEqual(Object.keys(VIOLATIONS).sort())
  })

  it.each(['none', 'of another node', 'over'] as const)(
    'and a rollback of a snapshot room is one when no crash explains it (%s)',
    (crash) => {
      expect(names(forgetful({ crash: 'kill' }))).toEqual([])
      expect(names(forgetful({ crash }))).toContain('rollback')
    },
  )

  it('and so is one of a journal room whose owner could have told an emptied store of it', () => {
    expect(names(emptied({ owner_fault: true }))).toEqual([])
    expect(names(emptied({ owner_fault: false }))).toContain('rollback')
  })

  it('and so is one whose owner had begun to tell it', () => {
    expect(names(emptied({ owner_fault: true, reclaimed: true }))).toEqual([])
    expect(names(emptied({ owner_fault: false, reclaimed: true }))).toContain('rollback')
  })
})

describe('the lobby', () => {
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
  ])('may list a room that %s for a lease and 2 s, and not longer', (_, happens) => {
    expect(lobby(happens(2900))).not.toContain('listed_ghost')
    expect(lobby(happens(3100))).toContain('listed_ghost')
  })

  it('may list a room longer while its node does not reach the store', () => {
    const cut = (node: string) => (history: OpenHistory) => {
      ended(history, 3100)
      history.faults.push({ kind: 'delay', node, at: history.end.at - 3500, until: history.end.at - 2000 })
    }
    expect(lobby(cut('node_a'))).not.toContain('listed_ghost')
    expect(lobby(cut('node_b'))).toContain('listed_ghost')
  })

  it('may list a room longer when an outage of its node comes later', () => {
    const cut = (node: string) => (history: OpenHistory) => {
      ended(history, 3100)
      history.faults.push({ kind: 'delay', node, at: history.end.at - 1500, until: history.end.at - 1000 })
    }
    expect(lobby(cut('node_a'))).not.toContain('listed_ghost')
    expect(lobby(cut('node_b'))).toContain('listed_ghost')
  })

  it('may list a room that was claimed again', () => {
    const again = (history: OpenHistory) => {
      ended(history, 9000)
      const claim = history.store.find(({ room }) => room === LOBBY_ROOM)!
      history.store.push({ ...claim, epoch: 2, began: history.end.at - 8000, ended: history.end.at - 8000 })
    }
    expect(lobby(again)).not.toContain('listed_ghost')
  })

  it('has a room in no list that does not run, and no player without a room', () => {
    const without = (history: OpenHistory) => {
      history.lobby!.end.rooms = []
    }
    expect(lobby(without)).toContain('list_wrong')
    const roomless = (history: OpenHistory) => {
      history.lobby!.end.roomless = ['eve']
    }
    expect(lobby(roomless)).toContain('left_out')
  })

  it('leaks hidden state to no player', () => {
    expect(lobby((history) => search(history, { kind: 'marks', marks: ['§lobby#3()§'] }))).toContain(
      'layer_leaked',
    )
  })

  it('may give a code or a seat away that the store has lost since', () => {
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

  it('keeps every seat that a chaos room has reserved', () => {
    const history = new Scenario('journal').end()
    const [owner] = history.end.owners
    history.end.owners[0] = { ...owner!, state: { ...(owner!.state as object), reserved: { 'ann/3': true } } }
    expect(check(history).violations.map(({ name }) => name)).toContain('reservation_broken')
  })

  it('may refuse a player whose reservation is used, or whose room has ended', () => {
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

it('what is hidden for a member that no client has said to be may come to one of them', () => {
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

describe('a member loses its seat', () => {
  it('when a store that lost its data has been back for a lease, and the owner of its room away', () => {
    expect(names(rewritten({ away_ms: 2900, told_ms: 1500 }))).toEqual([])
    expect(names(rewritten({ away_ms: 2900, told_ms: 1500 }, 'none'))).toEqual([])
  })

  it.each([
    ['when the owner was not away', { away_ms: 0, told_ms: 1500 }],
    ['when the owner was away for less than a lease', { away_ms: 900, told_ms: 1500 }],
    ['before a lease is over', { away_ms: 2900, told_ms: 900 }],
  ])('and not %s', (_, lost) => {
    expect(names(rewritten(lost))).toEqual(['seat_lost'])
    expect(names(rewritten(lost, 'none'))).toEqual(['seat_lost'])
  })
})

describe('a member of a room whose data the store loses over its hand-over', () => {
  /** Ann is told so long after it, and then the room is made again. */
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

  it('is told that the room is gone before it has another owner, once a lease is over', () => {
    expect(told(1500)).toEqual([])
    expect(told(900)).toEqual(['seat_lost'])
  })
})

describe('a member that came to an owner which was replaced and did not know it', () => {
  /** Eve joins after the claim of the next owner, at the one before it or (`at_next`) at the next. */
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

  it('has no seat at the next, and one that came to the next has', () => {
    expect(names(latecomer())).toEqual([])
    expect(names(latecomer({ at_next: true }))).toContain('seat_lost')
  })
})

describe('a member of a room that ended with its owner', () => {
  /** Ann hears of it so long after another node has looked for the room, at the connection that she had or at one behind that. */
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

  it('is told within seconds, and one that was away when it comes back', () => {
    expect(told({ after_ms: 2000 })).toEqual([])
    expect(told({ after_ms: 9000 })).toEqual(['seat_lost'])
    expect(told({ after_ms: 9000, back: { waits_ms: 0 } })).toEqual([])
    expect(told({ after_ms: 0, back: { waits_ms: 4000 } })).toEqual([])
  })

  it('loses its seat in a drain if no other node takes rooms, and only then', () => {
    const drained = (durability: Durability, forget: boolean, other?: FaultKind) => {
      const scenario = new Scenario(durability)
      scenario.claim('node_b')
      scenario.join('ann')
      if (other) scenario.fault(other, { node: 'node_a' })
      scenario.fault('drain')
      scenario.release({ forget })
      scenario.claim('node_a.2')
      scenario.loseSeat('ann')
      return names(scenario.end()).filter((name) => name === 'seat_lost')
    }
    expect(drained('none', true, 'drain')).toEqual([])
    expect(drained('none', true, 'kill')).toEqual([])
    for (const lost of [
      drained('none', true),
      drained('none', true, 'pause'),
      drained('none', false, 'drain'),
      drained('snapshot', true, 'drain'),
    ])
      expect(lost).toEqual(['seat_lost'])
  })

  it('is told later while its node stands still', () => {
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

describe('a client is refused what it resumes', () => {
  it('when it has no seat any more', () => {
    const seatless = (scenario: Scenario) => {
      scenario.fault('blackhole', { ms: 2000 })
      scenario.wipe()
      scenario.wait(1500)
      scenario.loseSeat('ann')
      scenario.rewrite()
    }
    expect(names(refused(seatless))).toEqual([])
  })

  it('when its seat went with the owner of its room, before it was told of that', () => {
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

  it('at the connection that lost a race, when the other one has resumed its session since', () => {
    const again = (scenario: Scenario) => {
      scenario.race('ann')
      scenario.resume('ann')
    }
    expect(names(refused(again, { superseded: true }))).toEqual([])
    expect(names(refused(again))).toEqual(['closed_without_cause'])
    const once = (scenario: Scenario) => scenario.race('ann')
    expect(names(refused(once, { superseded: true }))).toEqual(['closed_without_cause'])
  })

  it('when the store lost its session, and only a node that knew of no later resume wrote it down again', () => {
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

  it('when the store lost its session, and was told again only while it was asked', () => {
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

  it('and not when nothing has happened', () => {
    expect(names(refused(() => {}))).toEqual(['closed_without_cause'])
  })
})

describe('a claim that got no answer', () => {
  /** It may have taken a snapshot room from an owner that was away for a moment. Much later, another node claims the room. */
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

  it('explains a loss when the owner was away then', () => {
    expect(lost(true)).toEqual([])
    expect(lost(false)).toContain('rollback')
  })
})

describe('a take-over from an owner that lives', () => {
  it('does not explain that the new one lost what it had applied itself', () => {
    const history = overtaken()
    forget(history)
    expect(names(history)).toEqual(['acked_lost'])
  })

  it.each([
    ['came long after it', { idle_ms: 5000 }],
    ['came when that owner was dead', { fault: 'kill' }],
  ] as const)('does not explain a loss of what %s', (_, how) => {
    expect(names(withoutFrames(overtaken(how)))).toContain('acked_lost')
  })
})

describe('what an earlier owner remembers', () => {
  it('is not what its room may go on from while the store has what the last owner saved', () => {
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

describe('what a history would not have shown', () => {
  it('is what lies between the last sight of one owner and the first of the next, and nothing else', () => {
    const { pairs, excused, by } = check(forgetful({ crash: 'kill' }) as never).excused
    expect(by).toMatchObject({ take_over: 2, room_ended: 0, store_lost: 0, session_lost: 0, race: 0 })
    expect(excused / pairs).toBeLessThan(0.05)
  })
})
