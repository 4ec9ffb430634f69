import { mkdirSync, utimesSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { beforeEach, expect, it } from 'vitest'
import { newFolder } from '../../test/support/run-folder.ts'
import { roomfulProgram } from './programs.ts'

let root = ''
beforeEach(async () => {
  root = await newFolder()
  for (const folder of [
    'shared',
    'control',
    'dataplane',
    'client',
    'examples',
    'deploy/cli',
    'deploy/playground',
  ])
    write(`${folder}/file.ts`, 100)
})

/** A file that was last changed at this second. */
function write(name: string, at: number): void {
  const file = join(root, name)
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, '')
  utimesSync(file, at, at)
}

it('runs the sources where nothing is built', () => {
  expect(roomfulProgram(root)).toEqual({
    words: ['--import', expect.stringMatching(/^file:.*tsx/), join(root, 'deploy/cli/roomful.ts')],
    compiled: false,
  })
})

it('runs what is built from the sources as they are', () => {
  write('dist/deploy/cli/roomful.js', 200)
  write('control/app.test.ts', 300)
  expect(roomfulProgram(root)).toEqual({ words: [join(root, 'dist/deploy/cli/roomful.js')], compiled: true })
})

it('runs the sources where one has changed since the build', () => {
  write('dist/deploy/cli/roomful.js', 200)
  write('dataplane/rooms/room.ts', 300)
  expect(roomfulProgram(root).compiled).toBe(false)
})
