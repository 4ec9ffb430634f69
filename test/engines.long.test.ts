import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { readdir, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import type { Page } from 'playwright-core'
import { connect } from 'roomful/client'
import { expect, it, onTestFinished } from 'vitest'
import { launchChromium } from './support/chromium.ts'
import { gameProjects } from './support/game-projects.ts'
import { blocksOf } from './support/pages.ts'
import { startTyped } from './support/program.ts'
import { freePort } from './support/redis-server.ts'
import { newFolder } from './support/run-folder.ts'
import { installed, samplesOf } from './support/samples.ts'

/** npm downloads 200 MB of engines for the samples of this page, so no other test tries them. */
const PAGE = 'docs/guides/phaser-and-pixi.md'
const MEADOW = { width: 800, height: 600 }
const run = promisify(execFile)

/** Writes the game of the page, with its engines from npm. Returns its folder. */
async function newGame(): Promise<string> {
  const game = await (await gameProjects()).create('meadow', 'vanilla')
  for (const { name, code } of samplesOf(PAGE)) await writeFile(join(game, name), code)
  await writeFile(join(game, 'index.html'), blocksOf(PAGE, 'html')[0]!.code)
  const engines = await newFolder()
  await writeFile(join(engines, 'package.json'), '{ "private": true }')
  const words = ['install', '--no-audit', '--no-fund', '--loglevel=error', ...installed(PAGE)]
  await run('npm', words, { cwd: engines })
  for (const name of await readdir(join(engines, 'node_modules'))) {
    const link = join(game, 'node_modules', name)
    if (!existsSync(link)) await symlink(join(engines, 'node_modules', name), link)
  }
  return game
}

/** Returns the color of the page at a place of the meadow, as 0xRRGGBB. */
async function colorAt(page: Page, place: { x: number; y: number }): Promise<number> {
  const { x, y } = await onPage(page, place)
  const png = `data:image/png;base64,${(await page.screenshot()).toString('base64')}`
  return page.evaluate(
    async ([png, x, y]) => {
      const bitmap = await createImageBitmap(await (await fetch(png)).blob())
      const pen = new OffscreenCanvas(bitmap.width, bitmap.height).getContext('2d')!
      pen.drawImage(bitmap, 0, 0)
      const [red, green, blue] = pen.getImageData(x, y, 1, 1).data
      return red! * 0x10000 + green! * 0x100 + blue!
    },
    [png, x, y] as const,
  )
}

/** Returns the place on the page of a place of the meadow. */
async function onPage(page: Page, { x, y }: { x: number; y: number }): Promise<{ x: number; y: number }> {
  const box = (await page.locator('canvas').boundingBox())!
  return { x: box.x + (x * box.width) / MEADOW.width, y: box.y + (y * box.height) / MEADOW.height }
}

it('the game of the page compiles with Phaser and Pixi, and two tabs with Phaser see each other', async () => {
  const game = await newGame()
  await run('npx', ['tsc'], { cwd: game })
  const ports = await Promise.all(Array.from({ length: 4 }, async () => String(await freePort())))
  const [CONTROL_PORT = '', WS_PORT = '', ADMIN_PORT = '', port] = ports
  const dev = startTyped(`npm run dev -- --port ${port}`, game, { CONTROL_PORT, WS_PORT, ADMIN_PORT })
  onTestFinished(dev.end)
  await expect.poll(() => fetch(`http://localhost:${port}/`).then(({ ok }) => ok, dev.output)).toBe(true)

  const browser = await launchChromium()
  onTestFinished(() => browser.close())
  const tabs: Page[] = []
  for (const viewport of [
    { width: 1280, height: 800 },
    { width: 375, height: 667 },
  ]) {
    const page = await (await browser.newContext({ viewport })).newPage()
    await page.goto(`http://localhost:${port}/`)
    await page.locator('canvas').waitFor()
    tabs.push(page)
  }

  const client = await connect(`ws://127.0.0.1:${WS_PORT}`, { dev: 'test' })
  onTestFinished(() => client.close())
  const room = await client.join<{ type: 'meadow'; '~types'?: Meadow }>('meadow', {}, { create: false })
  const [mouse] = tabs
  await expect.poll(() => Object.keys(room.state.players).length).toBe(3)
  const target = { x: 600, y: 450 }
  const [from, to] = await Promise.all([onPage(mouse!, { x: 400, y: 300 }), onPage(mouse!, target)])
  await mouse!.mouse.move(from.x, from.y)
  await mouse!.mouse.down()
  await mouse!.mouse.move(to.x, to.y, { steps: 5 })
  // The pointer has whole pixels of a page that is larger than the meadow.
  const dragged = () =>
    Object.values(room.state.players).find(({ x, y }) => Math.hypot(x - target.x, y - target.y) < 1)
  await expect.poll(dragged).toBeDefined()
  await mouse!.mouse.up()
  for (const tab of tabs) await expect.poll(() => colorAt(tab, target)).toBe(dragged()!.color)

  await room.leave()
  await tabs[0]!.close()
  await expect.poll(() => colorAt(tabs[1]!, target)).toBe(0x1f3d2b)
})

/** Types of the room of the page. */
interface Meadow {
  readonly state: { readonly players: Record<string, { x: number; y: number; color: number }> }
  readonly messages: Record<never, never>
  readonly events: Record<never, never>
  readonly options: Record<never, never>
}
