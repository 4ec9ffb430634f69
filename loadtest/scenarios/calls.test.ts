import { expect, it } from 'vitest'
import { effects } from './calls.ts'

const violations = (answers: readonly number[], unanswered: number, applied: number) =>
  effects('calls', [{ roomId: 'load-calls:a', answers, unanswered, applied }]).violations

it('a room that has applied each call once has no violation, whether unanswered calls were applied or not', () => {
  expect(violations([2, 1, 3], 0, 3)).toBe(0)
  expect(violations([1, 3], 2, 3)).toBe(0)
  expect(violations([1, 2], 2, 2)).toBe(0)
})

it.each([
  ['twice', [1, 2], 0, 3],
  ['not at all', [1, 2], 0, 1],
  ['with the answer of another', [1, 1], 1, 2],
  ['and lost later, though one without an answer was applied', [1, 3], 1, 2],
] as const)('a call that was applied %s is a violation', (_, answers, unanswered, applied) => {
  expect(violations(answers, unanswered, applied)).toBe(1)
})
