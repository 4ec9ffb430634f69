import { describe, expect, it } from 'vitest'
import { readTracestate } from './tracestate.ts'

const member = (key: string, length: number): string => `${key}=${'x'.repeat(length - key.length - 1)}`

describe('a tracestate', () => {
  it.each([
    ['one member', 'rojo=00f067aa0ba902b7'],
    ['several', 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE'],
    ['one of a tenant', '0fw529a3039@nr=CI6;a:b'],
    ['every character that a key may have', 'a_9-*/=1'],
    ['blanks inside a value', 'a=b c'],
    ['512 characters', `${member('a', 255)},${member('b', 256)}`],
    ['32 members', Array.from({ length: 32 }, (_, i) => `k${i}=v`).join(',')],
  ])('is passed on with %s', (_, text) => {
    expect(readTracestate(text)).toBe(text)
  })

  it('loses blanks and empty members', () => {
    expect(readTracestate(' a=1 ,, \tb=2,')).toBe('a=1,b=2')
  })

  it.each([
    ['nothing', ''],
    ['nothing but commas', ' , ,'],
    ['no equals sign', 'a'],
    ['no key', '=1'],
    ['no value', 'a='],
    ['a capital in the key', 'Rojo=1'],
    ['a key that begins with a digit', '1a=1'],
    ['a tenant without a system', 'a@=1'],
    ['a key too long', `${'a'.repeat(257)}=1`],
    ['a value too long', member('a', 259)],
    ['an equals sign in the value', 'a=b=c'],
    ['what is not printable', 'a=b\u0001'],
    ['other letters than ASCII', 'a=é'],
    ['a line break', 'a=b\r\nx: y'],
    ['one key twice', 'a=1,b=2,a=3'],
    ['one member that is none', 'a=1,?,b=2'],
    ['513 characters', `${member('a', 256)},${member('b', 256)}`],
    ['33 members', Array.from({ length: 33 }, (_, i) => `k${i}=v`).join(',')],
    ['far too much', 'a=1,'.repeat(10_000)],
  ])('is dropped with %s', (_, text) => {
    expect(readTracestate(text)).toBeUndefined()
  })
})
