import { readFileSync } from 'node:fs'
import { parse } from 'yaml'
import { programSources } from './words.ts'

interface Rules {
  readonly groups: readonly { readonly rules: readonly Alert[] }[]
}

interface Alert {
  readonly alert: string
  readonly labels: { readonly severity: string }
  readonly annotations: { readonly runbook_url: string }
}

const read = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8')

const anchorOf = (heading: string): string => heading.toLowerCase().replaceAll(' ', '-')

const alertsOf = (): readonly Alert[] =>
  (parse(read('deploy/prometheus/alerts.yml')) as Rules).groups.flatMap(({ rules }) => rules)

/** Returns the alerts with links to their runbooks: a line for each first letter. */
export function alertIndex(): string {
  const lines = new Map<string, string[]>()
  for (const { alert, labels, annotations } of [...alertsOf()].sort((a, b) => (a.alert < b.alert ? -1 : 1))) {
    const name = alert.replace(/^Roomful/, '')
    const link = `[${name}](#${annotations.runbook_url.split('#')[1]})`
    const line = lines.get(name[0]!) ?? []
    lines.set(name[0]!, [...line, labels.severity === 'critical' ? `**${link}**` : link])
  }
  return [...lines.values()].map((line) => `- ${line.join(', ')}`).join('\n')
}

/**
 * Returns what an operator would search for in vain on docs/runbooks.md. Each section names its alerts, critical ones in bold, and log
 * lines that exist.
 */
export function runbookProblems(): string[] {
  const [, ...sections] = read('docs/runbooks.md').split(/^## /m)
  const texts = new Map(sections.map((text) => [anchorOf(text.split('\n', 1)[0]!), text]))
  const alerts = alertsOf().flatMap(({ alert, labels, annotations }) => {
    const anchor = annotations.runbook_url.split('#')[1]!
    const isBold = labels.severity === 'critical'
    const named = texts.get(anchor)?.includes(`**\`${alert}\`**`) ?? false
    const plain = texts.get(anchor)?.includes(`\`${alert}\``) ?? false
    if (plain && named === isBold) return []
    return [`docs/runbooks.md#${anchor} needs ${alert}, ${isBold ? 'in bold' : 'not in bold'}`]
  })
  const sources = programSources()
  const phrases = sections
    .flatMap((text) => [...text.matchAll(/\b(?:Log:|logs?) ((?:`[^`]+`(?:, )?)+)/g)])
    .flatMap(([, list]) => [...list!.matchAll(/`([^`]+)`/g)].map(([, phrase]) => phrase!))
    .filter((phrase) => !sources.some((source) => source.includes(phrase)))
  return [
    ...alerts,
    ...phrases.map((phrase) => `docs/runbooks.md has the log line "${phrase}": no program logs it`),
  ]
}
