import { describe, expect, it } from 'vitest'
import { checkBackends } from './backend-rules.ts'
import type { ViolationName } from './history.ts'
import { BankScenario } from './scenario.ts'

/** Names of the violations in the history of a bank that `play` makes. */
function names(play: (bank: BankScenario) => void): ViolationName[] {
  const bank = new BankScenario()
  play(bank)
  return [...new Set(checkBackends(bank.history()).map(({ name }) => name))]
}

const write = (bank: BankScenario, kind: string, at = -1) =>
  bank.store.filter((record) => record.kind === kind).at(at)!

describe('Calls', () => {
  it('may be repeated, also at the next owner and after the end of the room', () => {
    const held = (bank: BankScenario) => {
      bank.do('a')
      bank.answer('a')
      bank.fault('kill')
      bank.claim('bank_b')
      bank.answer('a')
      bank.do('b')
      bank.wipe()
      bank.do('c')
      bank.call('r', { refuse: true })
      bank.answer('r', 'room_logic_refused')
      bank.close()
      bank.do('d')
    }
    expect(names(held)).toEqual([])
  })

  it('may be gone if the store did not answer the end of the room, and the next owner has none of them', () => {
    const ended = (first: readonly string[]) => (bank: BankScenario) => {
      bank.do('a')
      bank.do('b')
      bank.close()
      Object.assign(write(bank, 'release'), { ok: undefined })
      Object.assign(write(bank, 'snapshot'), {
        content: { ...write(bank, 'snapshot').content, calls: first },
      })
    }
    expect(names(ended([]))).toEqual([])
    expect(names(ended(['c']))).toEqual([])
    expect(names(ended(['a']))).toEqual(['call_lost'])
  })

  it('may have their effect after a write without an answer that did not take effect', () => {
    const again = (stood: boolean) => (bank: BankScenario) => {
      bank.call('a')
      bank.grant('a', { arrives: stood })
      Object.assign(write(bank, 'commit'), { ok: undefined })
      bank.claim('bank_b')
      bank.grant('a')
      bank.answer('a')
      if (stood) return
      write(bank, 'claim').version = 0
      write(bank, 'commit').version = 0
      bank.state.twice = []
    }
    expect(names(again(true))).toEqual(['call_twice'])
    expect(names(again(false))).toEqual([])
  })

  it('must not have effects in two lives of a room, unless the store lost the outcome between them', () => {
    const twice = (between: (bank: BankScenario) => void) => (bank: BankScenario) => {
      bank.do('a')
      between(bank)
      bank.grant('a')
      bank.answer('a')
    }
    expect(names(twice((bank) => bank.close()))).toContain('call_twice')
    const wiped = (bank: BankScenario) => {
      bank.close()
      bank.wipe()
    }
    expect(names(twice(wiped))).not.toContain('call_twice')
    const lost = (bank: BankScenario) => {
      bank.fault('kill')
      bank.wipe({ by: 'bank_b', lost: true })
    }
    expect(names(twice(lost))).toEqual([])
    expect(names(twice((bank) => bank.wipe()))).toContain('call_twice')
  })

  it('may have an effect twice if a clock jumps by more than ten minutes', () => {
    const jumped = (amount: string) => (bank: BankScenario) => {
      bank.do('a')
      bank.fault('clock', { amount })
      bank.grant('a')
      bank.answer('a')
    }
    expect(names(jumped('3600000 ms'))).toEqual([])
    expect(names(jumped('60000 ms'))).toEqual(['call_answers_differ', 'call_twice'])
  })

  it('are lost if a later whole state is without them', () => {
    const forgotten = (bank: BankScenario) => {
      bank.do('a')
      bank.wipe()
      const whole = write(bank, 'snapshot')
      whole.content = { ...whole.content!, calls: [] }
    }
    expect(names((bank) => forgotten(bank))).toEqual(['call_lost'])
  })
})

describe('Notices', () => {
  it('may arrive more than once', () => {
    const again = (bank: BankScenario) => {
      bank.do('a')
      bank.do('b')
      bank.receive(write(bank, 'commit').notices![0]!)
      bank.receive(write(bank, 'commit', 0).notices![0]!)
    }
    expect(names(again)).toEqual([])
  })

  it('must arrive although the store lost its data, if their owner has written them again', () => {
    const lost = (wipe: (bank: BankScenario) => void) => (bank: BankScenario) => {
      bank.call('a')
      bank.grant('a', { arrives: false })
      bank.answer('a')
      wipe(bank)
    }
    expect(names(lost((bank) => bank.wipe()))).toEqual(['notice_lost'])
    const old = (bank: BankScenario) => {
      bank.wait(31_000)
      bank.wipe()
    }
    expect(names(lost(old))).toEqual([])
    const killed = (bank: BankScenario) => {
      bank.fault('kill')
      bank.wipe({ by: 'bank_b', lost: true })
    }
    expect(names(lost(killed))).toEqual([])
    const ended = (bank: BankScenario) => {
      bank.fault('redis_lost')
      bank.close()
      Object.assign(write(bank, 'release'), { ok: false })
      for (const kind of ['claim', 'snapshot']) Object.assign(write(bank, kind), { version: 0 })
    }
    expect(names(lost(ended))).not.toContain('notice_lost')
    const fenced = (bank: BankScenario) => {
      bank.fault('delay')
      bank.wipe()
      Object.assign(write(bank, 'snapshot'), { ok: false })
      bank.claim('bank_b')
      Object.assign(write(bank, 'claim'), { version: 0 })
    }
    expect(names(lost(fenced))).not.toContain('notice_lost')
  })

  it('must arrive again if the webhook has failed', () => {
    const failed = (again: boolean) => (bank: BankScenario) => {
      bank.call('a')
      bank.grant('a', { accepted: false })
      bank.answer('a')
      if (again) bank.receive(write(bank, 'commit').notices![0]!)
    }
    expect(names(failed(true))).toEqual([])
    expect(names(failed(false))).toEqual(['notice_lost'])
  })

  it('need not arrive if it is not certain that they were committed', () => {
    const unsure = (bank: BankScenario) => {
      bank.call('a')
      bank.grant('a', { arrives: false })
      bank.answer('a')
      write(bank, 'commit').ok = undefined
    }
    expect(names(unsure)).toEqual([])
  })
})

describe('A banned player', () => {
  const online = (play: (bank: BankScenario) => void) =>
    names((bank) => {
      bank.online()
      bank.ban()
      play(bank)
      bank.wait(10_000)
    })

  it('is offline within 1 s, and may return when the ban has ended', () => {
    const back = (bank: BankScenario) => {
      bank.wait(900)
      bank.offline()
      bank.wait(5000)
      bank.unban()
      bank.online()
    }
    expect(online(back)).toEqual([])
    const early = (bank: BankScenario) => {
      bank.offline()
      bank.wait(5000)
      bank.online()
    }
    expect(online(early)).toEqual(['ban_ignored'])
  })

  it('may stay while the node is cut off, and if the store has lost the ban', () => {
    const cutOff = (bank: BankScenario) => {
      bank.fault('blackhole', { ms: 4000 })
      bank.wait(900)
      bank.offline()
    }
    expect(online(cutOff)).toEqual([])
    const elsewhere = (bank: BankScenario) => {
      bank.fault('blackhole', { node: 'bank_b', ms: 4000 })
      bank.offline()
    }
    expect(online(elsewhere)).toEqual(['ban_ignored'])
    expect(online((bank) => bank.fault('redis_lost'))).toEqual([])
  })

  it('may stay until the delayed messages of the ban arrive', () => {
    const delayed = (amount: string) =>
      online((bank) => {
        bank.fault('delay', { ms: 500, amount })
        bank.wait(2500)
        bank.offline()
      })
    expect(delayed('2800 ms')).toEqual([])
    expect(delayed('200 ms')).toEqual(['ban_ignored'])
  })
})

describe('A kicked player', () => {
  const kicked = (play: (bank: BankScenario) => void) =>
    names((bank) => {
      bank.online()
      bank.sit('mem_1')
      play(bank)
      bank.wait(10_000)
    })

  it('loses the seat within 3 s after its client is online', () => {
    const away = (bank: BankScenario) => {
      bank.offline()
      bank.kick()
      bank.wait(5000)
      bank.online()
      bank.stand('mem_1')
      bank.sit('mem_2')
    }
    expect(kicked(away)).toEqual([])
    const stays = (bank: BankScenario) => {
      bank.kick()
      bank.wait(3500)
      bank.stand('mem_1')
    }
    expect(kicked(stays)).toEqual(['kick_ignored'])
  })
})
