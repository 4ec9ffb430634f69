import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** A web page in one piece, and the headers that let it run nothing but itself. */
export interface Page {
  readonly html: string
  readonly headers: Readonly<Record<string, string>>
}

const STYLES = ['base.css', 'page.css', 'lists.css', 'room.css', 'narrow.css']

/**
 * The page of `GET /admin`, put together from `page/`. Its content security policy allows the page's own style and script by their
 * hashes and requests to the node itself; nothing is loaded from anywhere, and no text can become markup.
 */
export function loadAdminPage(): Page {
  const style = STYLES.map(read).join('\n')
  const script = oneScript('main.js')
  const html = read('page.html')
    .replace('<style></style>', () => `<style>${style}</style>`)
    .replace('<script type="module"></script>', () => `<script type="module">${script}</script>`)
  const policy = [
    "default-src 'none'",
    `style-src '${hash(style)}'`,
    `script-src '${hash(script)}'`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ]
  return {
    html,
    headers: {
      'content-security-policy': policy.join('; '),
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cache-control': 'no-store',
    },
  }
}

const IMPORT = /^import \{[^}]*\} from '\.\/([a-z-]+\.js)'\n/gm

/**
 * A module and those it imports as one, each after what it imports. They are plain modules of this folder that name what they import, and
 * no two have the same name at their top level.
 */
function oneScript(entry: string): string {
  const parts = new Map<string, string>()
  const add = (name: string): void => {
    if (parts.has(name)) return
    parts.set(name, '')
    const text = read(name)
    for (const [, imported] of text.matchAll(IMPORT)) add(imported!)
    parts.delete(name)
    parts.set(name, text.replace(IMPORT, '').replace(/^export (?=(async )?function|class|const)/gm, ''))
  }
  add(entry)
  const script = [...parts.values()].join('\n')
  const left = /^(import|export)\b.*/m.exec(script)
  if (left)
    throw new Error(`a module of the admin page says "${left[0]}", which cannot be put into one script`)
  return script
}

const read = (name: string): string => readFileSync(new URL(`./page/${name}`, import.meta.url), 'utf8')

const hash = (text: string): string => `sha256-${createHash('sha256').update(text).digest('base64')}`
