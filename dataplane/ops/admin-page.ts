import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'

/** A web page in one piece, and the headers that let it run nothing but itself. */
export interface Page {
  readonly html: string
  readonly headers: Readonly<Record<string, string>>
}

/**
 * The page of `GET /admin`, put together from `page/`. Its content security policy allows the page's own style and script by their
 * hashes and requests to the node itself; nothing is loaded from anywhere.
 */
export function loadAdminPage(): Page {
  const [markup, style, script] = ['page.html', 'page.css', 'page.js'].map((name) =>
    readFileSync(new URL(`./page/${name}`, import.meta.url), 'utf8'),
  ) as [string, string, string]
  const html = markup
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

const hash = (text: string): string => `sha256-${createHash('sha256').update(text).digest('base64')}`
