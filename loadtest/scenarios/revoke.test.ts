import { describe, expect, it } from 'vitest'
import { revocation } from './revoke.ts'

describe('the check of a revocation', () => {
  it('holds when every session closes within a second', () => {
    expect(revocation([180, 1000], 2)).toMatchObject({ violations: 0, note: '2 of 2 sessions closed' })
  })

  it('counts sessions that close late or never', () => {
    expect(revocation([400, 1220, 1310], 5)).toMatchObject({
      violations: 4,
      note: '3 of 5 sessions closed, 2 late',
      examples: [
        '2 sessions were not closed within 10 s',
        'a session was closed after 1220 ms',
        'a session was closed after 1310 ms',
      ],
    })
  })
})
