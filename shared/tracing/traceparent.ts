/** What a `traceparent` says: https://www.w3.org/TR/trace-context/#traceparent-header. */
export interface TraceParent {
  /** 32 hexadecimal digits. */
  readonly trace_id: string
  /** 16 hexadecimal digits. */
  readonly span_id: string
  readonly sampled: boolean
}

const PATTERN = /^([\da-f]{2})-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(-.*)?$/
const LONGEST = 256
const SAMPLED = 1

/** What a `traceparent` of any version says; undefined for text that is none. */
export function readTraceparent(text: string): TraceParent | undefined {
  const [, version, trace_id = '', span_id = '', flags = '', more] =
    (text.length <= LONGEST && PATTERN.exec(text)) || []
  if (version === undefined || version === 'ff' || (version === '00' && more !== undefined)) return undefined
  if (/^0+$/.test(trace_id) || /^0+$/.test(span_id)) return undefined
  return { trace_id, span_id, sampled: (Number.parseInt(flags, 16) & SAMPLED) === SAMPLED }
}

/** The `traceparent`, version 00, that says this. */
export const writeTraceparent = ({ trace_id, span_id, sampled }: TraceParent): string =>
  `00-${trace_id}-${span_id}-${sampled ? '01' : '00'}`
