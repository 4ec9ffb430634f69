import { BankScenario } from './bank-scenario.ts'
import type { ViolationName } from './history.ts'
import type { OpenHistory } from './scenario.ts'

/** Adds a bank whose backends and guest see nothing wrong, after `spoil` has changed what they have seen. */
function addBank(history: OpenHistory, spoil: (bank: BankScenario) => void): void {
  const bank = new BankScenario(history.end.at - 10_000)
  bank.online()
  bank.sit('mem_gus')
  for (let n = 0; n < 12; n++) bank.do(`a${n}`)
  for (let n = 0; n < 12; n++) bank.answer(`a${n}`)
  bank.call('refused', { refuse: true })
  spoil(bank)
  if (!bank.records.some((record) => record.kind === 'answered' && record.call === 'refused'))
    bank.answer('refused', 'room_logic_refused')
  bank.wait(4000)
  history.store = [...history.store.filter(({ room }) => room !== bank.room), ...bank.store]
  history.backends = bank.backends()
}

export const withBank = (history: OpenHistory): OpenHistory => {
  addBank(history, () => {})
  return history
}

const planted =
  (spoil: (bank: BankScenario) => void) =>
  (history: OpenHistory): void =>
    addBank(history, spoil)

const lastCommit = (bank: BankScenario) => bank.store.findLast(({ kind }) => kind === 'commit')!

/** One planted violation each. */
export const PLANTED_BACKENDS = {
  call_twice: planted((bank) => {
    bank.grant('a3')
  }),
  call_lost: planted((bank) => {
    delete bank.state.effects.a11
  }),
  call_answered_early: planted((bank) => {
    lastCommit(bank).ended += 100
  }),
  call_refused_applied: planted((bank) => {
    bank.grant('refused')
  }),
  call_refused_without_cause: planted((bank) => {
    bank.answer('a4', 'room_logic_failed')
  }),
  call_answers_differ: planted((bank) => {
    bank.state.effects.a5 = 99
    bank.answer('a5')
  }),
  call_unanswered: planted((bank) => {
    bank.call('unanswered')
  }),
  notice_lost: planted((bank) => {
    bank.call('silent')
    bank.grant('silent', { arrives: false })
    bank.answer('silent')
  }),
  notice_uncommitted: planted((bank) => {
    bank.receive({ id: 'ntc_none', body: '{}' })
  }),
  notice_differs: planted((bank) => {
    bank.receive({ id: 'ntc_1', body: '{"call":"another"}' })
  }),
  notice_order: planted((bank) => {
    const [first, second] = bank.records.filter(({ kind }) => kind === 'received')
    ;[first!.at, second!.at] = [second!.at, first!.at]
  }),
  ban_ignored: planted((bank) => {
    bank.ban()
  }),
  kick_ignored: planted((bank) => {
    bank.kick()
  }),
} satisfies { [N in ViolationName]?: (history: OpenHistory) => void }
