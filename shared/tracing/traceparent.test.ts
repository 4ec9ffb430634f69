import { describe, expect, it } from 'vitest'
import { readTraceparent, writeTraceparent } from './traceparent.ts'

const TRACE = '0af7651916cd43dd8448eb211c80319c'
const SPAN = 'b7ad6b7169203331'

describe('a traceparent', () => {
  it('names a trace, a span in it, and whether that is recorded', () => {
    const read = { trace_id: TRACE, span_id: SPAN, sampled: true }
    expect(readTraceparent(`00-${TRACE}-${SPAN}-01`)).toEqual(read)
    expect(readTraceparent(`00-${TRACE}-${SPAN}-00`)).toEqual({ ...read, sampled: false })
    expect(writeTraceparent(read)).toBe(`00-${TRACE}-${SPAN}-01`)
    expect(writeTraceparent({ ...read, sampled: false })).toBe(`00-${TRACE}-${SPAN}-00`)
  })

  it('may have flags that are not known, and be of a later version with more in it', () => {
    expect(readTraceparent(`00-${TRACE}-${SPAN}-ff`)?.sampled).toBe(true)
    expect(readTraceparent(`01-${TRACE}-${SPAN}-00-more`)?.sampled).toBe(false)
  })

  it.each([
    ['nothing', ''],
    ['an id too short', `00-${TRACE.slice(1)}-${SPAN}-01`],
    ['upper case', `00-${TRACE.toUpperCase()}-${SPAN}-01`],
    ['a trace of zeros', `00-${'0'.repeat(32)}-${SPAN}-01`],
    ['a span of zeros', `00-${TRACE}-${'0'.repeat(16)}-01`],
    ['the version that is none', `ff-${TRACE}-${SPAN}-01`],
    ['more than version 00 has', `00-${TRACE}-${SPAN}-01-more`],
    ['a line break behind it', `00-${TRACE}-${SPAN}-01\n`],
    ['far more than one', `01-${TRACE}-${SPAN}-01-${'x'.repeat(300)}`],
  ])('is not %s', (_, text) => {
    expect(readTraceparent(text)).toBeUndefined()
  })
})
