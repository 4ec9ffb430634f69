import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { transformSync } from 'esbuild'
import { parseAst } from 'vite'

/** Words that readers had to read twice, and what to write instead. */
const RULES: readonly (readonly [pattern: RegExp, write: string])[] = [
  [/\bno one\b|\bwhoever\b/i, 'the subject, such as "no client"'],
  [/\bsettles?\b/i, 'acknowledge, resolve, finish or flush'],
  [/\bof (?:its|their) own\b/, 'nothing, or the name of the thing'],
  [/\b(?:is|are|was|were) told\b/, 'receives, is notified'],
  [/\b(?:one that|those that|those who)\b/i, 'the noun'],
  [/\d a second\b/, 'per second, or /s'],
  [
    /\bas many as (?:it|they|allowed|may)\b|\bis the most\b|\bthe most there\b|\bmay have no more\b/,
    'limit: N',
  ],
  [/\bby itself\b/, 'automatically'],
  [/\bat once\b/, 'immediately, or at one moment'],
  [/\b(?:goes|go) on\b/, 'continues'],
  [/\blets? go of\b|\bgives? up\b/, 'releases, stops'],
  [/\bmeanwhile\b/i, 'until then, during that time'],
  [/\bbesides\b/i, 'also'],
  [/\balso (?:if|after|when|while)\b/, 'even if, even after'],
  [/\bstands? (?:in|before|for)\b|\brests (?:in|at)\b/, 'is, means'],
  [/\| the same(?= \||[;,]| with\b)|\bdo(?:es)? the same\b/i, 'the value, or what it does'],
  [
    /\btakes (?:no|none|only|one of|websockets)\b|\btakes an? (?!few|moment|second|minute|free|seat|place)/,
    'accepts, needs',
  ],
]

const ROOT = new URL('..', import.meta.url).pathname

/** Folders with pages, and with programs whose texts people read. */
const PAGES = [
  '.',
  'docs',
  'docs/decisions',
  'docs/guides',
  'docs/site',
  'deploy',
  'deploy/balancer',
  'deploy/helm',
  'examples',
]
const PROGRAMS = ['client', 'control', 'dataplane', 'deploy/cli', 'loadtest', 'server', 'shared']
/** The changelog repeats what earlier versions said. */
const HISTORY = ['CHANGELOG.md']

/** A text that people read, with its place. */
interface Text {
  readonly place: string
  readonly text: string
}

const read = (path: string): string => readFileSync(join(ROOT, path), 'utf8')

/** Returns the lines of a page without code, addresses and comments. */
function* linesOf(page: string): Generator<Text> {
  let inCode = false
  for (const [index, line] of read(page).split('\n').entries()) {
    if (line.startsWith('```')) inCode = !inCode
    if (inCode || line.startsWith('<!--')) continue
    const text = line.replaceAll(/`[^`]*`/g, '``').replaceAll(/\]\([^)]*\)/g, ']')
    yield { place: `${page}:${index + 1}`, text }
  }
}

interface Node {
  readonly type: string
  readonly [key: string]: unknown
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string'

/** Returns all nodes of a program. */
function* nodesOf(node: Node): Generator<Node> {
  yield node
  for (const value of Object.values(node))
    for (const inner of Array.isArray(value) ? value : [value]) if (isNode(inner)) yield* nodesOf(inner)
}

/** Returns the texts of a node: of a string, or between the values of a template. */
function textOf({ type, value, quasis }: Node): string | undefined {
  if (type === 'Literal') return typeof value === 'string' ? value : undefined
  if (type !== 'TemplateLiteral') return undefined
  return (quasis as { value: { cooked: string } }[]).map(({ value }) => value.cooked).join('…')
}

/** Levels of logs. A fatal line is for the person who has started the process, and says all. */
const LOGS = /^(?:debug|info|warn|error)$/

/** True for a call of a log whose phrase has values. An operator searches for phrases, and values are fields. */
function hasValuesInPhrase({ type, callee, arguments: given }: Node): boolean {
  if (type !== 'CallExpression' || !isNode(callee) || callee.type !== 'MemberExpression') return false
  const { object, property } = callee as unknown as { object: Node; property: Node }
  const of = object.type === 'MemberExpression' ? (object.property as Node) : object
  if (!/^log$/i.test(String(of.name)) || !LOGS.test(String(property.name))) return false
  const phrase = (given as Node[]).at(-1)
  return phrase?.type === 'TemplateLiteral' && (phrase.expressions as Node[]).length > 0
}

/** True for a source in which a rule could find something. Parsing takes most of the time. */
const isSuspicious = (source: string): boolean =>
  RULES.some(([pattern]) => pattern.test(source)) || /\blog\b[^\n]*\.\w+\([^)]*`/i.test(source)

/** Returns what is wrong with the texts of a program, and with the phrases of its logs. */
function* problemsOf(path: string): Generator<string> {
  const source = read(path)
  if (!isSuspicious(source)) return
  const lineOf = (text: string): number =>
    source.slice(0, source.indexOf(text.split('…')[0]!)).split('\n').length
  const { code } = transformSync(source, { loader: path.endsWith('x') ? 'tsx' : 'ts', jsx: 'automatic' })
  for (const node of nodesOf(parseAst(code) as unknown as Node)) {
    if (hasValuesInPhrase(node))
      yield `${path}: the phrase of a log has values: "${textOf((node.arguments as Node[]).at(-1)!)}": make them fields`
    const text = textOf(node)
    if (!text?.includes(' ')) continue
    yield* wordsOf({ place: `${path}:${lineOf(text)}`, text: text.replaceAll(/`[^`]*`/g, '``') })
  }
}

/** Returns a line for each rule that a text breaks. */
function wordsOf({ place, text }: Text): string[] {
  return RULES.flatMap(([pattern, write]) => {
    const [words] = pattern.exec(text) ?? []
    return words === undefined ? [] : [`${place}: "${words}": write ${write}`]
  })
}

const pages = PAGES.flatMap((folder) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith('.md') && !HISTORY.includes(name))
    .map((name) => join(folder, name)),
)

const programs = PROGRAMS.flatMap((folder) =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name) && !/(?:\.test|suite)\.tsx?$|^test|testing\//.test(name))
    .map((name) => join(folder, name)),
)

/** Returns a line for each text that needs other words, and for each phrase of a log that has values. */
export const wordProblems = (): string[] => [
  ...pages.flatMap((page) => [...linesOf(page)].flatMap(wordsOf)),
  ...programs.flatMap((path) => [...problemsOf(path)]),
]

/** Returns the source of each program. */
export const programSources = (): string[] => programs.map(read)
