import { execFile, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import type { Page } from 'playwright-core'
import { launchChromium } from '../../test/support/chromium.ts'

/**
 * `npx tsx docs/site/kill-picture.ts` makes the moving picture of the README. Two tabs play cards in `npm run cluster`. The owner of the
 * room is killed at the prompt, and both play on. Each frame is a screenshot of the pages, with the prompt's real output below. Needs
 * `convert` of ImageMagick.
 */

const run = promisify(execFile)
const ROOM = 'cards:kill'
const FRAME_MS = 160
/** Moves before and after the kill. */
const MOVES = { before: 4, after: 7 }
/** Clicks the first of these that exists. */
const STEPS = ['#deal:enabled', '#hand.mine .playable:not([data-card^="8"])', '#deck:enabled', '#pass']

const root = fileURLToPath(new URL('../..', import.meta.url))
const cluster = spawn('npm', ['run', 'cluster'], { cwd: root, stdio: ['pipe', 'pipe', 'inherit'] })
let output = ''
cluster.stdout.setEncoding('utf8').on('data', (text: string) => {
  output += text
})
async function printed(pattern: RegExp): Promise<RegExpExecArray> {
  for (;;) {
    const found = pattern.exec(output)
    if (found) return found
    await setTimeout(50)
  }
}
const [, games] = await printed(/play +(http:\S+)/)
await printed(/Type help/)

const browser = await launchChromium()
async function sitDown(): Promise<Page> {
  const context = await browser.newContext({ viewport: { width: 400, height: 440 } })
  const page = await context.newPage()
  await page.goto(`${games}/cards/?room=${ROOM.split(':')[1]}`)
  await page.locator('#deal').waitFor()
  return page
}
const players = [await sitDown(), await sitDown()]
const terminal = await browser.newPage({ viewport: { width: 800, height: 84 } })
await terminal.setContent(
  '<style>body{margin:0;background:#111;color:#eee;font:15px/26px monospace;padding:3px 12px;white-space:pre}</style><div></div>',
)
const lines: string[] = []
const show = (line: string) => {
  lines.push(line)
  return terminal.locator('div').evaluate((div, text) => {
    div.textContent = text
  }, lines.slice(-3).join('\n'))
}

const folder = await mkdtemp(join(tmpdir(), 'roomful-picture-'))
let frames = 0
async function frame(): Promise<void> {
  const number = String(frames++).padStart(3, '0')
  const shots = await Promise.all([...players, terminal].map((page) => page.screenshot()))
  await Promise.all(shots.map((shot, i) => writeFile(join(folder, `${number}-${i}.png`), shot)))
}
async function film(count: number): Promise<void> {
  for (let i = 0; i < count; i++) {
    const begun = performance.now()
    await frame()
    await setTimeout(Math.max(0, FRAME_MS - (performance.now() - begun)))
  }
}
/** Makes a move of the player who has the turn, and films it. */
async function move(): Promise<void> {
  for (const page of players)
    for (const step of STEPS) {
      if (!(await page.locator(step).count())) continue
      await page.locator(step).first().dispatchEvent('click')
      return film(4)
    }
  await film(1)
}

const owner = async (): Promise<string> => {
  const from = output.length
  cluster.stdin.write('status\n')
  for (;;) {
    const line = output
      .slice(from)
      .split('\n')
      .find((text) => text.includes(ROOM))
    const name = line && /node-\d/.exec(line)?.[0]
    if (name) return name
    await setTimeout(50)
  }
}
await move()
for (let i = 0; i < MOVES.before; i++) await move()
const node = await owner()
await show(`roomful> kill ${node.slice(-1)}        # SIGKILL: ${node} runs this room`)
await film(5)
cluster.stdin.write(`kill ${node.slice(-1)}\n`)
const moved = printed(new RegExp(`room ${ROOM} went from [^\\n(]*`))
const told = moved.then(([line]) => show(line.trim()))
for (let i = 0; i < MOVES.after; i++) await move()
await told
await film(8)

const names = Array.from({ length: frames }, (_, i) => join(folder, String(i).padStart(3, '0')))
for (const name of names)
  await run('convert', [
    ...['(', `${name}-0.png`, `${name}-1.png`, '+append', ')'],
    ...[`${name}-2.png`, '-append', '+repage', `${name}.png`],
  ])
const path = fileURLToPath(new URL('public/kill.gif', import.meta.url))
const encode = ['-delay', String(FRAME_MS / 10), '-loop', '0', ...names.map((name) => `${name}.png`)]
await run('convert', [...encode, '+dither', '-colors', '64', '-layers', 'optimize', path])
await browser.close()
cluster.stdin.write('quit\n')
await rm(folder, { recursive: true })
process.stdout.write(`wrote ${path}: ${frames} frames\n`)
