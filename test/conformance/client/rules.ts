import { readFileSync } from 'node:fs'

/** A numbered rule of docs/protocol.md. */
export interface Rule {
  /** Of the page's levels, the one that it belongs to. */
  readonly level: number
  /** Its words on the page, with its number and title. */
  readonly text: string
}

/** Returns the numbered rules of the page, by their titles. */
function rulesOf(page: string): ReadonlyMap<string, Rule> {
  const rules = new Map<string, Rule>()
  for (const part of page.split(/^## Level (?=\d)/m).slice(1)) {
    const level = Number.parseInt(part, 10)
    const found = part.matchAll(/^- \*\*(R\d+)\. ([^*]+)\*\*([^\n]*(?:\n {2}\S[^\n]*)*)/gm)
    for (const [, number, title = '', words] of found)
      rules.set(title.replace(/\.$/, ''), {
        level,
        text: `${number}. ${title}${words}`.replaceAll(/\s+/g, ' '),
      })
  }
  return rules
}

const RULES = rulesOf(readFileSync(new URL('../../../docs/protocol.md', import.meta.url), 'utf8'))

/** Returns the rule with this title. Throws when the page has none. */
export function ruleOf(title: string): Rule {
  const rule = RULES.get(title)
  if (!rule)
    throw new Error(`docs/protocol.md has no rule "${title}"; it has ${[...RULES.keys()].join(', ')}`)
  return rule
}
