import { describe, expect, it } from 'vitest'
import { InternalToken } from './internal-token.ts'

describe('an internal token', () => {
  it('accepts itself and nothing else', () => {
    const token = new InternalToken('a-secret')
    expect(token.shown).toBe('a-secret')
    expect(token.accepts('a-secret')).toBe(true)
    for (const other of ['', 'a-secre', 'a-secret ', 'another', undefined])
      expect(token.accepts(other)).toBe(false)
  })

  it('of which there are several shows the first and accepts each, but not the whole list', () => {
    const token = new InternalToken('new,old')
    expect(token.shown).toBe('new')
    expect(['new', 'old', 'new,old', ''].map((given) => token.accepts(given))).toEqual([
      true,
      true,
      false,
      false,
    ])
  })

  it.each([undefined, '', ','])('that is %j accepts no one, whatever is shown', (tokens) => {
    const none = new InternalToken(tokens)
    expect(none.shown).toBeUndefined()
    expect([none.accepts(undefined), none.accepts('')]).toEqual([false, false])
  })

  it('is never an empty one beside others', () => {
    expect(new InternalToken('new,').accepts('')).toBe(false)
  })
})
