/**
 * Every selector of a series in an expression, as Prometheus takes it: `name{label="value"}`. One with alternatives
 * (`result=~"a|b"`) becomes one for each, so that a value which no process knows is found.
 */
export function selectorsIn(expr: string): string[] {
  const selectors = [...expr.matchAll(/\b(?:service_\w+|up)\b(?:\{[^}]*\})?/g)].map(([selector]) => selector)
  return [...new Set(selectors.flatMap(alternatives))]
}

function alternatives(selector: string): string[] {
  const found = /(\w+)=~"([\w|]+)"/.exec(selector)
  if (!found) return [selector]
  const [matcher, label, values = ''] = found
  return values.split('|').flatMap((value) => alternatives(selector.replace(matcher, `${label}="${value}"`)))
}
