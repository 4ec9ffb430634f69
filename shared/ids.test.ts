import { describe, expect, it } from 'vitest'
import { newCode, normalizeCode } from './ids.ts'

describe('The code of a room', () => {
  it('has six characters of Crockford’s base32, from six random bytes', () => {
    const random = { bytes: () => Uint8Array.of(0, 31, 18, 32 + 10, 255, 24), float: () => 0 }
    expect(newCode(random)).toBe('0ZJAZR')
  })

  it.each<[typed: string, code: string]>([
    ['k7qx2m', 'K7QX2M'],
    ['  K7Q-x2m ', 'K7QX2M'],
    ['oO0iIl', '000111'],
    ['Ｋ７Ｑｘ２ｍ', 'K7QX2M'],
    ['＃Ｋ７Ｑ　Ｘ２Ｍ', 'K7QX2M'],
    ['#k7q\u00a0x2m', 'K7QX2M'],
    ['\u200bK7Q\u200d\u2060X2M\ufeff\u00ad', 'K7QX2M'],
    ...[...'-‐‑‒–—―−﹣－ーｰ'].map((dash) => [`K7Q${dash}X2M`, 'K7QX2M'] as [string, string]),
  ])('is read from %s, whatever its case, look-alikes, width and dashes', (typed, code) => {
    expect(normalizeCode(typed)).toBe(code)
  })

  it.each(['', 'K7QX2', 'K7QX2MM', 'K7QXUM', 'K7QX2é', 'K7QX{}'])('rejects %j', (typed) => {
    expect(normalizeCode(typed)).toBeUndefined()
  })
})
