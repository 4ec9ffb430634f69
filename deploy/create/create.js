#!/usr/bin/env node
// @ts-check
import { readArguments, sayNext, writeGame } from './game.js'

/** `npm create roomful my-game`: creates a game in a new folder. */

const base = process.cwd()
const game = await readArguments('npm create roomful', base)
writeGame(game)
sayNext(game, base, ['npm install', 'npm run dev'])
